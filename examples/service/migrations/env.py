"""Alembic's entrance, as the page "Deploying" has it."""

from alembic import context
from models import Base
from sqlalchemy import NullPool, create_engine

from lastlight_state import migrations

with create_engine(context.config.get_main_option("sqlalchemy.url"), poolclass=NullPool).begin() as connection:
    context.configure(connection=connection, target_metadata=Base.metadata, include_object=migrations.include_object)
    migrations.upgrade_from_env()
    context.run_migrations()
