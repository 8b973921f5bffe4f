"""Run a Python program in a process forked from the warm server beside this file (see `server.py`).

Installed as `python` and `backburner`. It passes on its arguments, environment, folder and standard streams,
forwards signals, and ends as the forked process ends. Every start pays for its imports, so it has few.
"""

import _signal as signal  # type: ignore[import-not-found]  # `signal` would double the start time
import _socket as socket
import marshal
import os
import sys

FORWARDED = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGWINCH")


def main() -> None:
    folder, name = os.path.split(os.path.abspath(__file__))
    arguments = sys.argv[1:]
    if name == "backburner":
        arguments.insert(0, os.path.join(os.path.dirname(sys.executable), name))
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(os.path.join(folder, "socket"))
    except OSError:  # no warm server: start cold
        os.execv(sys.executable, [sys.executable, *arguments])
    message = marshal.dumps((os.getcwd(), arguments, dict(os.environ)))
    streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)
    connection.sendmsg([len(message).to_bytes(4, "big")], [rights])
    connection.sendall(message)
    for each in FORWARDED:
        number = getattr(signal, each)
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda received, _: connection.send(bytes([received])))
    ending = connection.recv(2)
    killed_by, code = ending if len(ending) == 2 else (0, 1)
    if killed_by:
        if killed_by != signal.SIGKILL:
            signal.signal(killed_by, signal.SIG_DFL)
        os.kill(os.getpid(), killed_by)
    os._exit(code)


main()
