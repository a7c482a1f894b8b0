from orchestrator.devices.runs import PhoneProcess, family


def process(pid: int, parent: int, group: int = 0) -> PhoneProcess:
    return PhoneProcess(pid=pid, parent=parent, group=group, command="")


def test_a_family_is_the_leader_its_group_and_all_descendants() -> None:
    table = [
        process(1, 0),
        process(10, 1, 10),
        process(11, 10, 11),
        process(12, 11, 11),
        process(13, 1, 10),
        process(20, 1, 20),
    ]
    assert family(table, [10]) == [10, 11, 12, 13]


def test_a_family_whose_leader_died_is_found_by_its_group() -> None:
    assert family([process(1, 0), process(13, 1, 10), process(14, 13, 10)], [10]) == [13, 14]
