"""The command ``build programs``."""

from __future__ import annotations

from typing import Annotated

from orchestrator.app.options import Paths, arg
from orchestrator.cli.progress import tell
from orchestrator.errors import PlanError
from orchestrator.extensions.runtimes.declaration import declared, declared_names, load_declared
from orchestrator.plugins import CommandResult, Settings, command, text_table


@command("build programs")
def declared_programs(
    settings: Settings,
    files: Annotated[Paths, arg("Files to check (default: list those that are known).")] = (),
) -> CommandResult:
    """List or check declared programs of other runtimes.

    Example: benchfarm build programs mine.yaml
    """
    found, is_faulty = [load_declared(path) for path in files], False
    for name in () if files else declared_names():
        try:
            found.append(declared(name))
        except PlanError as error:
            # One faulty file hides none of the others.
            is_faulty = True
            tell(settings.log_format, "declared-program", str(error), level="error")
    rows = [
        (
            each.name,
            " ".join(each.models) or "output only",
            ", ".join(each.delegates) or "-",
            each.title,
        )
        for each in found
    ]
    data = {
        each.name: {
            "title": each.title,
            "program": each.program,
            "models": list(each.models),
            "delegates": [str(name) for name in each.delegates],
            "figures": list(each.figures),
            "parameters": {
                name: own.model_dump(exclude_none=True) for name, own in each.parameters.items()
            },
        }
        for each in found
    }
    text = text_table(("program", "models", "delegates", "what it is"), rows)
    return CommandResult(text=text, data=data, exit_code=PlanError.exit_code if is_faulty else 0)
