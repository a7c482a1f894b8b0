"""Variables and options of a shell."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Variables:
    """Variables of a shell; functions put local ones on top."""

    values: dict[str, str] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)

    def copy(self) -> Variables:
        """Return a copy for a subshell."""
        return Variables(dict(self.values), set(self.exported))

    def environment(self) -> dict[str, str]:
        """Return what programs inherit."""
        return {name: self.values[name] for name in sorted(self.exported) if name in self.values}
