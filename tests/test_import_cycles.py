"""Our packages have no import cycles; imports for type checking count, too."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp

PACKAGES = ("bai_services", "bai_spawner", "bai_auth", "bai_labext")


def cycle_in(imports: dict[str, set[str]]) -> list[str]:
    """Return the modules of a cycle, the first one again at the end; empty if there is no cycle."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_cycle_is_detected() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}
    assert sorted(set(cycle_in(imports))) == ["b", "c"]


def test_packages_have_no_import_cycles() -> None:
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=False, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 400, "the packages were not read"
    found = cycle_in(imports)
    assert not found, "import cycle: " + " imports ".join(reversed(found))
