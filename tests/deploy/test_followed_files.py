"""The proxy accepts and revokes sites, and changes its certificate, while it runs."""

import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from fedadb.deploy import followed_files, keys
from tests.deploy.federation import GUARD, wait_for
from tests.deploy.test_proxy import Scene, Site, make_all_keys, open_scene


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(followed_files, "LOOK_SECONDS", 0.05)
    with open_scene(make_all_keys(tmp_path)) as opened:
        yield opened


def test_a_site_is_revoked_and_accepted_again(scene: Scene, tmp_path: Path) -> None:
    file = scene.directory / keys.SITES / "bad.pub"
    with scene.proxy():
        assert scene.bad.post().status_code == 200
        file.rename(tmp_path / "bad.pub")
        wait_for(lambda: scene.bad.post().status_code == 401)
        assert scene.good.post().status_code == 200
        shutil.copy(tmp_path / "bad.pub", file)
        wait_for(lambda: scene.bad.post().status_code == 200)


def test_a_file_that_is_no_key_yet_changes_nothing(scene: Scene) -> None:
    new = scene.directory / keys.SITES / "new.pub"
    with scene.proxy():
        new.write_text("ecdsa-sha2-nistp384 AAAA")  # as if it were being copied
        (scene.directory / keys.SITES / "bad.pub").unlink()
        assert scene.good.post().status_code == 200
        new.unlink()
        wait_for(lambda: scene.bad.post().status_code == 401)
        assert scene.good.post().status_code == 200


def expired(site: Site) -> bool:
    """Whether a new connection fails because the certificate has expired."""
    try:
        site.post()
    except httpx.ConnectError as error:
        return "certificate has expired" in str(error)
    return False


def test_the_day_on_which_the_certificate_expires(scene: Scene) -> None:
    """New connections fail, open ones go on, and a new certificate needs no restart."""
    with scene.proxy():
        context = ssl.create_default_context(cafile=str(scene.good.ca))
        base = f"https://127.0.0.1:{scene.good.port}"
        with httpx.Client(base_url=base, verify=context, timeout=GUARD, trust_env=False) as kept:
            path = "/v1/fleet/pull-messages"
            assert kept.post(path, headers=scene.good.headers()).status_code == 200
            keys.renew_server_certificate(scene.directory, [], days=0)
            wait_for(lambda: expired(scene.good))
            assert kept.post(path, headers=scene.good.headers()).status_code == 200
        keys.renew_server_certificate(scene.directory, [], days=1)
        wait_for(lambda: not expired(scene.good))
        assert scene.good.post().status_code == 200
