"""--client-api-keys-file with several processes: each goes by it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from time import monotonic, sleep

import pytest

from tests.support.router_process import RouterProcess

PATH = "/v1/completions"


def statuses(router: RouterProcess, key: str) -> set[int]:
    """Of requests on connections of their own, which meet all processes."""
    fields = {"Authorization": f"Bearer {key}"}
    body = {"model": "m"}
    return {router.call("POST", PATH, body, headers=fields)[0] for _ in range(24)}


def test_every_process_goes_by_the_file_and_by_its_last_good_list(
    tmp_path: Path,
) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text("- key: old\n")
    flags = ("--client-api-keys-file", str(path), "--processes", "2")
    with RouterProcess(*flags) as router:
        assert statuses(router, "old") == {404}  # there is no worker
        assert statuses(router, "new") == {401}
        path.write_text("- key: new\n")
        deadline = monotonic() + 15
        while statuses(router, "new") != {404} and monotonic() < deadline:
            sleep(0.1)
        path.write_text("- kye: other\n")
        while router.logs().count("last good") < 2 and monotonic() < deadline:
            sleep(0.1)
        assert statuses(router, "new") == {404}
        assert statuses(router, "old") == {401}


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_file_that_is_bad_at_start_is_refused(tmp_path: Path, processes: str) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text("- key: [secret\n")
    flags = ("--client-api-keys-file", str(path), "--processes", processes)
    router = RouterProcess(*flags)
    ended = subprocess.run(router.command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "neither YAML nor JSON (line 2)" in ended.stderr
    assert "secret" not in ended.stderr
