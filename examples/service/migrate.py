"""Bring the database of ``DATABASE_URL`` to the newest revision: the library's tables, and then the service's."""

import os
from pathlib import Path

from alembic import command
from alembic.config import Config


def config_of(url: str) -> Config:
    """Return Alembic's configuration, which needs no ``alembic.ini``."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    config.set_main_option("path_separator", "os")
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return config


def migrate(url: str) -> None:
    """Do what ``alembic upgrade head`` does."""
    command.upgrade(config_of(url), "head")


if __name__ == "__main__":
    migrate(os.environ["DATABASE_URL"])
