"""Makes each test process and each program of a test have one library of SQLite: that of ``pysqlite3``.

Python imports it when it starts, where ``make pysqlite3`` has put this folder on its path.
"""

import os
import sys

if os.environ.get("LASTLIGHT_STATE_SQLITE_DRIVER") == "pysqlite3":
    import pysqlite3
    import pysqlite3.dbapi2

    sys.modules["sqlite3"] = pysqlite3
    sys.modules["sqlite3.dbapi2"] = pysqlite3.dbapi2
