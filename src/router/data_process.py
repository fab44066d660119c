"""How the control process starts a data process: python -m router.data_process FD.

Owns nothing; not a command for people. FD is the process's end of its channel.
"""

from __future__ import annotations

import sys

from router.app.child import run_child

if __name__ == "__main__":
    sys.exit(run_child(int(sys.argv[1])))
