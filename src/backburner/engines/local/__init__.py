"""The local engine: a supervisor on each host, started when there is work, that outlives the server.

- In the server: `engine.py` starts the supervisor, under the lock of `lock.py`. `submission.py` submits
  tasks through it.
- The supervisor: `supervisor/supervisor.py` is its loop. `claims.py` requests tasks, `dispatch.py` sends them
  to runners and handles their messages, `leases.py` renews leases and stops attempts, `batch.py` writes all
  of it. `workers.py` and `processes/children.py` are its end of the processes that it starts.
- Those processes: `processes/zygote.py` imports the app and forks, `processes/runner.py` executes tools.
"""

from __future__ import annotations

from .engine import LocalEngine as LocalEngine
from .lock import SupervisorLock as SupervisorLock
from .status import SupervisorStatus as SupervisorStatus
from .status import supervisor_status as supervisor_status
