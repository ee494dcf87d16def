"""Tenants: each has a store in its own schema of a Postgres database. All stores share one connection pool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastlight_state.lazy import public

if TYPE_CHECKING:
    from lastlight_state.tenants.face import Tenants as Tenants
    from lastlight_state.tenants.records import (
        ErasedTenant as ErasedTenant,
        FailedTenant as FailedTenant,
        MigratedTenants as MigratedTenants,
        Tenant as Tenant,
    )

public(globals(), {"face": "Tenants", "records": "ErasedTenant FailedTenant MigratedTenants Tenant"})
