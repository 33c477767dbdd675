"""End of a certificate's validity, from files that a CA has made and from any bytes."""

import ssl
from datetime import datetime, timezone
from pathlib import Path

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from node.peers.certificate_expiry import expiry_in, expiry_of
from node.peers.security import Security
from node.security_config import SecurityConfig
from tests.certificates import Authority


@pytest.mark.parametrize("year", [2031, 2049, 2050, 2099])
def test_the_end_is_the_one_that_the_ca_has_set(tmp_path, year):
    end = datetime(year, 2, 3, 4, 5, 6, tzinfo=timezone.utc)
    certificate = trustme.CA().issue_cert("node-1.example.org", not_after=end)
    path = tmp_path / "node.crt"
    path.write_bytes(certificate.private_key_pem.bytes()
                     + b"".join(pem.bytes() for pem in certificate.cert_chain_pems))
    assert expiry_of(str(path)) == end.timestamp()


def test_a_file_without_a_certificate_has_no_end(tmp_path):
    path = tmp_path / "none"
    for text in ("", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                 "-----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n"):
        path.write_text(text)
        assert expiry_of(str(path)) == 0


@given(st.data())
def test_damaged_bytes_are_an_error_or_a_time(data):
    whole = bytearray(CERTIFICATE)
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert expiry_in(bytes(whole[:data.draw(st.integers(0, len(whole)))])) > -(1 << 40)
    except (ValueError, IndexError):
        pass


CERTIFICATE = ssl.PEM_cert_to_DER_cert(
    trustme.CA().issue_cert("x").cert_chain_pems[0].bytes().decode())


def test_a_node_knows_the_ends_of_its_own_certificates_until_it_reads_others(tmp_path):
    authority = Authority(tmp_path)
    client, peer = authority.issue("localhost"), authority.issue("node-1.x", expired=True)
    security = Security(SecurityConfig(
        client_certificate=client.certificate, client_key=client.key, peer_ca=client.ca,
        peer_certificate=peer.certificate, peer_key=peer.key), bytes(16))
    now = datetime.now(timezone.utc).timestamp()
    assert security.expiries["peer"] < now < security.expiries["client"]
    assert Security(SecurityConfig(), bytes(16)).expiries == {}
    renewed = authority.issue("node-1.x")
    Path(renewed.certificate).replace(peer.certificate)
    Path(renewed.key).replace(peer.key)
    security.reload()
    assert now < security.expiries["peer"]
