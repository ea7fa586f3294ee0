"""Takes a database back to an older schema, for tests of reading and upgrading it."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

import storage


def back_to(path: Path, revision: str) -> None:
    """Takes the database of the newest schema back to an older one, by the migrations' own downgrades."""
    config = Config()
    config.set_main_option("path_separator", "os")
    config.set_main_option("script_location", str(Path(storage.__file__).with_name("database") / "migrations"))
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, revision)
        connection.commit()
