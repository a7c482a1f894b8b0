"""One phone of real parts: ``unshare --net --mount python3 phone.py ROOT FOLDER LISTENER``.

It runs in a network of its own, where nothing but loopback is, so that adbd is out of everybody's
reach. LISTENER is the number of an inherited socket that listens on 127.0.0.1 of this computer;
what connects there is passed on to adbd. Each line on standard input is an order (cut, kill-adbd,
hang, resume, reboot) and is answered by a line; the end of the input is the end of the phone.
"""

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import uuid
from pathlib import Path

#: What /data holds: enough for benchmark_model and its models, and quickly filled.
DATA_BYTES = 192 << 20


class Phone:
    """The phone's processes and the links to it."""

    def __init__(self, root: Path, folder: Path, port: int) -> None:
        self.root, self.folder, self.port = root, folder, port
        self.links: set[asyncio.StreamWriter] = set()
        self.process: subprocess.Popen[bytes] | None = None

    def boot(self) -> None:
        """Start the phone's init in namespaces of its own."""
        (self.folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
        spaces = ("--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child=SIGKILL")
        script = Path(__file__).with_name("boot.sh")
        with (self.folder / "adbd.log").open("ab") as log:
            self.process = subprocess.Popen(
                ["unshare", *spaces, "sh", script, self.root, self.folder, str(self.port)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def halt(self) -> None:
        """End all its processes: with the first one of a pid namespace the kernel ends the others."""
        assert self.process is not None
        # A first process that has just begun doesn't end with its parent yet.
        self.process.send_signal(signal.SIGSTOP)
        for pid in _children(self.process.pid):
            os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def adbd(self) -> int:
        """Return adbd's number on this computer, the grandchild of what this process started."""
        assert self.process is not None
        init = _children(self.process.pid)[0]
        return next(
            pid
            for pid in _children(init)
            if Path(f"/proc/{pid}/comm").read_text().strip() == "adbd"
        )

    def cut(self) -> None:
        """Close every link at once."""
        for writer in list(self.links):
            writer.transport.abort()

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry bytes both ways until one side ends."""
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:  # it boots
            writer.transport.abort()
            return
        self.links |= {writer, inner_writer}
        with contextlib.suppress(asyncio.CancelledError):  # the phone ends
            await asyncio.gather(_carry(reader, inner_writer), _carry(inner_reader, writer))
        self.links -= {writer, inner_writer}

    def obey(self, order: str) -> None:
        """Do what one line says."""
        if order == "cut":
            self.cut()
        elif order == "kill-adbd":
            os.kill(self.adbd(), signal.SIGKILL)
        elif order in {"hang", "resume"}:
            os.kill(self.adbd(), signal.SIGSTOP if order == "hang" else signal.SIGCONT)
        elif order == "reboot":
            self.halt()
            self.boot()
        else:
            raise ValueError(order)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 18):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


def prepare(folder: Path) -> None:
    """Bring loopback up, and give /data a size; both go with this process."""
    with socket.socket() as control:
        name = struct.pack("16sh", b"lo", 1)  # IFF_UP
        fcntl.ioctl(control, 0x8914, name)  # SIOCSIFFLAGS
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(
        [
            "mount",
            "-t",
            "tmpfs",
            "-o",
            f"size={DATA_BYTES},mode=771,uid=1000,gid=1000",
            "data",
            folder / "data",
        ],
        check=True,
    )
    for name, uid, mode in (("local", 0, 0o751), ("local/tmp", 2000, 0o771), ("data", 1000, 0o771)):
        path = folder / "data" / name
        path.mkdir()
        os.chown(path, uid, uid)
        path.chmod(mode)


async def main(root: Path, folder: Path, listener: socket.socket) -> None:
    """Run the phone until standard input ends."""
    prepare(folder)
    port = listener.getsockname()[1]
    # A virtual machine's host could reach adbd this way, which no network namespace keeps apart.
    with contextlib.suppress(OSError):
        taken = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
        taken.bind((socket.VMADDR_CID_ANY, port))
    phone = Phone(root, folder, port)
    phone.boot()
    server = await asyncio.start_server(phone.pass_on, sock=listener)
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin
    )
    try:
        while line := await orders.readline():
            phone.obey(line.decode().strip())
            print("done", flush=True)
    finally:
        server.close()
        phone.cut()
        phone.halt()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), socket.socket(fileno=int(sys.argv[3]))))
