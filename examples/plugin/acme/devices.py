"""A source of devices: boards that this computer plays."""

from dataclasses import replace

from orchestrator.plugins import CheckResult, DeviceSource, HostDevice, ListedPhone, PhoneCheck
from orchestrator.records.case import Serial


class Board(HostDevice):
    """A board that this computer plays."""

    def __init__(self, folder):
        super().__init__(folder)
        self.serial = Serial(folder.name)

    def facts(self):
        """Return what the board is."""
        return replace(super().facts(), serial=self.serial, model="Acme board")

    def checks(self):
        """Yield what came of each check."""
        works = self.shell("exit 7").exit_code == 7
        yield PhoneCheck(name="shell", result=CheckResult.WORKS if works else CheckResult.FAILS)


def attached(settings):
    """Return the boards that are here now."""
    folder = settings.data_folder / "boards"
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return [
        ListedPhone(address=name, serial=name, state="device", model="Acme board", usable=True)
        for name in names
    ]


def open_board(workspace, seen):
    """Open one of them; raises DeviceError kinds."""
    return Board(workspace.settings.data_folder / "boards" / seen.address)


def lacking(settings):
    """Return what this computer lacks for boards, and the next step."""
    folder = settings.data_folder / "boards"
    return ("", "") if folder.is_dir() else ("there is no folder of boards", f"mkdir {folder}")


BOARDS = DeviceSource(title="acme", attached=attached, open=open_board, lacking=lacking)
