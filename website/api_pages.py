"""The reference of the Python API: every name that `import fedadb` exports, in groups."""

import fedadb
from fedadb.exports import MODULES

# The groups, and the modules of each. A module may be a package: then all of its modules are meant.
GROUPS = {
    "Experiments and runs": ("experiment",),
    "Data": ("datasets", "core.data", "core.transform"),
    "Partitions": ("partition",),
    "Models": ("models", "core.model"),
    "Algorithms": ("algorithms", "roles"),
    "Writing an algorithm": ("core.algorithm", "core.replies", "core.vector", "core.stream"),
    "Filters": ("filters", "core.filter"),
    "Attacks": ("attacks", "core.attack"),
    "Optimisers and schedules": ("core.optimizers", "core.schedules", "core.server_optimizers"),
    "The engine": ("engine",),
    "Observers": ("observers",),
    "Errors": ("core.errors",),
}


def api_pages() -> dict[str, str]:
    """The pages as Markdown, by file name."""
    pages = {"index.md": _index()}
    for group in GROUPS:
        pages[f"{_slug(group)}.md"] = f"# {group}\n\n" + "\n\n".join(
            f"::: {MODULES[name]}.{name}" for name in _names(group)
        )
    return pages


def group_of(name: str) -> str:
    """The group of an exported name."""
    inside = MODULES[name].removeprefix("fedadb.")
    found = [
        group
        for group, modules in GROUPS.items()
        if any(inside == module or inside.startswith(f"{module}.") for module in modules)
    ]
    if len(found) != 1:
        raise ValueError(f"{name} must be in one group of website/api_pages.py, not in {found}")
    return found[0]


def _names(group: str) -> list[str]:
    return [name for name in sorted(MODULES, key=str.lower) if group_of(name) == group]


def _slug(group: str) -> str:
    return group.lower().replace(" ", "-")


def _index() -> str:
    lines = ["# Python", "", "Everything that `import fedadb` exports.", ""]
    for group in GROUPS:
        lines += [f"## [{group}]({_slug(group)}.md)", "", "| name | what it is |", "| --- | --- |"]
        for name in _names(group):
            link = f"[`{name}`]({_slug(group)}.md#{MODULES[name]}.{name})"
            lines.append(f"| {link} | {_summary(name)} |")
        lines.append("")
    return "\n".join(lines)


def _summary(name: str) -> str:
    doc = getattr(fedadb, name).__doc__
    if not doc or doc.startswith(f"{name}("):  # what dataclasses and NamedTuples generate
        raise ValueError(f"{name} has no docstring")
    return " ".join(doc.strip().split("\n\n")[0].split()).replace("|", "\\|")
