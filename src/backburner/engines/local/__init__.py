"""The local engine: a supervisor on each host, started when there is work, that outlives the server.

- In the server: `engine.py` starts a supervisor under `supervisor_lock.py`; `silent_holder.py` replaces one
  that hangs, `succession.py` one that retires.
- The supervisor: `supervisor.py` is its loop and puts its parts together. `claiming.py` leases tasks,
  `dispatch.py` gives them to runners and takes what these say, `oversight.py` ends what must end, `leases.py`
  hears what others want, `write_batch.py` writes it all. `workers.py` and `child_processes.py` are its end of
  the processes that it starts. `hold.py` says until when those may run.
- Those processes: `zygote.py` has the app imported and forks, `runner.py` executes tools.
"""

from __future__ import annotations

from .engine import LocalEngine as LocalEngine
from .standing import Standing as Standing
from .standing import supervisor_standing as supervisor_standing
from .supervisor_lock import SupervisorLock as SupervisorLock
