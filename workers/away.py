"""Which errors mean that the database is away: nothing is wrong with the work, and waiting helps."""

from __future__ import annotations

from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoFreeConnection

DATABASE_AWAY = (OperationalError, InterfaceError, NoFreeConnection)
