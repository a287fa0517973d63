"""How a client finds nodes, and what it does when they are gone, elsewhere than advertised, or refuse."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from silverfold.conf.errors import (
    ConfigError,
    LocalProtocolError,
    RemoteProtocolError,
    SourceRefused,
    SourceUnavailable,
    UntrustedSource,
)
from silverfold.connectors.hstreamdb.client import connect
from silverfold.connectors.hstreamdb.client.settings import basic_token
from silverfold.connectors.hstreamdb.protocol.description import ClusterDescription, encode_description
from silverfold.connectors.hstreamdb.protocol.messages.cluster import (
    LookupSubscriptionResponse,
    NodeState,
    ServerNode,
    ServerNodeStatus,
)
from silverfold.connectors.hstreamdb.protocol.messages.streams import ListStreamsResponse, Stream
from silverfold.connectors.hstreamdb.protocol.status import status_text
from tests.support.certificates import AUTHORITY, trusted_file
from tests.support.hstreamdb.scripted_node import ScriptedNode, connected, never, refusing, scripted
from tests.support.peers import nobody

TOKEN = basic_token("me", "secret")


async def one_stream(*_: Any) -> ListStreamsResponse:
    return ListStreamsResponse(streams=[Stream(stream_name="orders")])


def described(*nodes: tuple[int, int, NodeState | None], old_layout: bool = False) -> Any:
    """A description of nodes: id, port and state, if any."""

    async def describe(*_: Any) -> bytes:
        listed = [ServerNode(id=number, host="127.0.0.1", port=port) for number, port, _ in nodes]
        states = [
            ServerNodeStatus(node=node, state=state)
            for node, (_, _, state) in zip(listed, nodes, strict=True)
            if state is not None
        ]
        return encode_description(ClusterDescription("0.1.0", "", listed, states, 1), old_layout=old_layout)

    return describe


def test_seeds_are_tried_in_order_until_one_answers() -> None:
    async def scenario() -> None:
        with nobody() as dead:
            async with (
                scripted({"ListStreams": one_stream}) as node,
                await connect(f"hstream://{dead},{node.target}") as client,
            ):
                assert [each.stream_name for each in await client.list_streams()] == ["orders"]

    asyncio.run(scenario())


def test_no_seed_that_answers_is_an_unavailable_source_at_once() -> None:
    with nobody() as dead, pytest.raises(SourceUnavailable, match="DescribeCluster"):
        asyncio.run(connect(f"hstream://{dead}"))


def test_a_seed_that_never_answers_costs_one_deadline() -> None:
    async def scenario() -> None:
        async with scripted({"DescribeCluster": never}) as node:
            with pytest.raises(SourceUnavailable, match=r"not answered within 0\.2 s \(`timeout`\): DEADLINE_EXCEEDED"):
                await connect(f"hstream://{node.target}", timeout=0.2)

    asyncio.run(scenario())


@pytest.mark.parametrize("old_layout", [False, True])
def test_calls_go_on_at_the_next_running_node_and_skip_dead_ones(old_layout: bool) -> None:
    async def scenario() -> None:
        async with scripted({"ListStreams": one_stream}) as living:
            with nobody() as gone, nobody() as dead:
                nodes = described(
                    (1, gone.port, NodeState.RUNNING),
                    (2, dead.port, NodeState.DEAD),
                    (3, living.port, NodeState.RUNNING),
                    old_layout=old_layout,
                )
                async with (
                    scripted({"DescribeCluster": nodes}) as seed,
                    await connect(f"hstream://{seed.target}") as client,
                ):
                    assert len(await client.list_streams()) == 1

    asyncio.run(scenario())


def test_a_client_finds_nodes_anew_by_its_seeds_when_all_it_knew_are_gone() -> None:
    async def scenario() -> None:
        with nobody() as gone:
            nodes = [(1, gone.port, None)]

            async def describe(*given: Any) -> bytes:
                found: bytes = await described(*nodes)(*given)
                return found

            async with (
                scripted({"ListStreams": one_stream}) as late,
                scripted({"DescribeCluster": describe}) as seed,
                await connect(f"hstream://{seed.target}") as client,
            ):
                with pytest.raises(SourceUnavailable):
                    await client.list_streams()
                nodes[0] = (2, late.port, None)
                assert len(await client.list_streams()) == 1

    asyncio.run(scenario())


def test_an_unreachable_advertised_address_is_named_with_its_remedy_and_the_remedy_works() -> None:
    async def scenario() -> None:
        with nobody() as wrong:
            async with scripted({"ListStreams": one_stream}, advertised=("127.0.0.1", wrong.port)) as node:
                url = f"hstream://{node.target}"
                async with await connect(url) as client:
                    with pytest.raises(SourceUnavailable, match=f"{wrong}: as the cluster advertises; `advertised`"):
                        await client.list_streams()
                async with await connect(url, advertised={str(wrong): node.target}) as client:
                    assert len(await client.list_streams()) == 1

    asyncio.run(scenario())


def test_a_host_may_be_called_as_one_of_grpcs_schemes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with scripted({"ListStreams": one_stream}) as node:
            monkeypatch.chdir(tmp_path)
            with pytest.raises(SourceUnavailable) as failed:
                await connect("hstream://unix:1", timeout=0.5)
            assert "No such file" not in str(failed.value)
            async with await connect(f"hstream://{node.target}"):
                pass

    asyncio.run(scenario())


def test_a_lookup_without_an_address_is_the_peers_fault() -> None:
    async def lookup(*_: Any) -> LookupSubscriptionResponse:
        return LookupSubscriptionResponse()

    async def scenario() -> None:
        async with connected({"LookupSubscription": lookup}) as (_, client):
            with pytest.raises(RemoteProtocolError, match="bad_node"):
                await client.list_consumers("f")

    asyncio.run(scenario())


def test_a_subscriptions_call_is_repeated_after_a_new_lookup_if_the_node_gave_it_away() -> None:
    async def scenario() -> int:
        wrong = status_text(800, "WrongServer", "Subscription is bound to a different node")
        async with connected({"ListConsumers": refusing("FAILED_PRECONDITION", wrong)}) as (node, client):
            with pytest.raises(SourceUnavailable, match="WrongServer"):  # the cluster will agree on another one
                await client.list_consumers("f")
            assert node.calls["ListConsumers"] == 3
            return node.calls["LookupSubscription"]

    assert asyncio.run(scenario()) == 3


def test_a_refused_token_is_reported_once_and_never_shown() -> None:
    async def scenario(code: str, text: str) -> int:
        async with scripted({"DescribeCluster": refusing(code, text)}) as node:
            with pytest.raises(SourceRefused) as refused:
                await connect(f"hstream://{node.target}", token=TOKEN, token_without_tls=True)
            assert TOKEN.rstrip("=") not in str(refused.value)
            assert "token" in str(refused.value)
            assert ("authorization", f"Basic {TOKEN}") in node.metadata
            return node.calls["DescribeCluster"]

    assert asyncio.run(scenario("UNAUTHENTICATED", f"Invalid token: Basic {TOKEN}")) == 1
    bare = TOKEN.rstrip("=")
    for text in (
        f"Invalid token: {TOKEN}",
        f"token=Basic%20{bare}%3D",
        status_text(0, f"token:{bare}", ["Basic", TOKEN]),
    ):
        assert asyncio.run(scenario("UNAUTHENTICATED", text)) == 1
    assert asyncio.run(scenario("CANCELLED", "")) == 1  # without TLS


SLASHED = "cm9vdDpww6T/Pnf77z9z"


@pytest.mark.parametrize(
    ("token", "text", "expected"),
    [
        (SLASHED, "Basic%20cm9vdDpww6T%2FPnf77z9z, cm9vdDpww6T%2fPnf77z9z", "Basic%20***, ***"),
        (SLASHED, '{"error":0,"message":"bad cm9vdDpww6T\\/Pnf77z9z","extra":1}', "bad ***"),
        (SLASHED, '{"error":0,"message":"bad \\u0063m9vdDpww6T\\u002fPnf77z9z","extra":1}', "bad ***"),
        (SLASHED, "cm9vdDpww6T_Pnf77z9z or cm9vdDpww6T/...", "*** or ***..."),
        ("cm9vdDpww6T_Pnf77z9z", SLASHED, "***"),
        (basic_token("root", "hunter:ä/2"), "of root:hunter:ä/2; hunter%3A%C3%A4%2f2", "of root:***; ***"),
        (basic_token("root", "hunter:ä/2"), '{"error":0,"message":"hunter:\\u00e4\\/2","extra":1}', "***"),
        (basic_token("root", "abc"), "no token abc", "no token abc"),
        ("bm8gcGFpcv8=", "bm8gcGFpcv8= is no pair", "*** is no pair"),
    ],
)
def test_no_form_of_a_token_or_its_password_is_shown(token: str, text: str, expected: str) -> None:
    async def scenario() -> None:
        async with scripted({"DescribeCluster": refusing("UNAUTHENTICATED", text)}) as node:
            with pytest.raises(SourceRefused) as refused:
                await connect(f"hstream://{node.target}", token=token, token_without_tls=True)
            assert expected in (refused.value.code, refused.value.text)

    asyncio.run(scenario())


def test_cancelling_a_call_ends_it_at_once_and_leaves_the_client_usable() -> None:
    async def scenario() -> None:
        async with connected({"ListStreams": never, "ListSubscriptions": never}) as (_, client):
            call = asyncio.create_task(client.list_streams())
            await asyncio.sleep(0.05)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await client.describe_cluster()

    asyncio.run(scenario())


def test_closing_the_client_ends_calls_with_an_error_not_with_a_cancellation() -> None:
    async def scenario() -> None:
        async with connected({"ListStreams": never}) as (_, client):
            call = asyncio.create_task(client.list_streams())
            await asyncio.sleep(0.05)
            await client.close()
            with pytest.raises(LocalProtocolError, match="closed"):
                await call
            with pytest.raises(LocalProtocolError, match="closed"):
                await client.list_streams()
            await client.close()

    asyncio.run(scenario())


class Files:
    """Certificates of a server and a client, in files."""

    def __init__(self, folder: Path) -> None:
        self.root = trusted_file(folder)
        self.client, self.key = str(folder / "client.pem"), str(folder / "client.key")
        issued = AUTHORITY.issue_cert("client.example")
        issued.cert_chain_pems[0].write_to_path(self.client)
        issued.private_key_pem.write_to_path(self.key)

    @staticmethod
    def server(
        *,
        wants_certificate: bool,
        authority: trustme.CA = AUTHORITY,
        hosts: tuple[str, ...] = ("localhost", "127.0.0.1"),
    ) -> Any:
        issued = authority.issue_cert(*hosts)
        pair = (issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes())
        return grpc.ssl_server_credentials([pair], AUTHORITY.cert_pem.bytes(), wants_certificate)


async def list_over_tls(credentials: Any, **tls: str) -> None:
    node = ScriptedNode({"ListStreams": one_stream})
    await node.start(credentials)
    try:
        async with await connect(f"hstreams://{node.target}", tls=tls or None, token=TOKEN) as client:
            assert len(await client.list_streams()) == 1
        assert ("authorization", f"Basic {TOKEN}") in node.metadata
    finally:
        await node.stop()


def test_tls_and_mutual_tls(tmp_path: Path) -> None:
    files = Files(tmp_path)
    asyncio.run(list_over_tls(files.server(wants_certificate=False), root_certificate=files.root))
    own = {"client_certificate": files.client, "client_certificate_key": files.key}
    asyncio.run(list_over_tls(files.server(wants_certificate=True), root_certificate=files.root, **own))
    with pytest.raises(SourceUnavailable):
        asyncio.run(list_over_tls(files.server(wants_certificate=True), root_certificate=files.root))


@pytest.mark.parametrize(
    "other", [{"authority": trustme.CA()}, {"hosts": ["other.example"]}], ids=["authority", "host"]
)
def test_a_certificate_of_a_stranger_or_another_host_is_not_trusted(tmp_path: Path, other: dict[str, Any]) -> None:
    files = Files(tmp_path)
    stranger = files.server(wants_certificate=False, **other)
    with pytest.raises(UntrustedSource):
        asyncio.run(list_over_tls(stranger, root_certificate=files.root))


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("none.pem", "No such file"),
        ("garbage.pem", "root_certificate.*a PEM file that can be used"),
        (".", "Not a file"),
    ],
)
def test_a_certificate_file_that_cannot_be_used_is_named(tmp_path: Path, name: str, match: str) -> None:
    (tmp_path / "garbage.pem").write_text("garbage")
    with pytest.raises(ConfigError, match=match):
        asyncio.run(connect("hstreams://127.0.0.1:1", tls={"root_certificate": str(tmp_path / name)}))


def test_a_file_that_goes_between_two_reads_of_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ca.pem").touch()
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda _context, file: Path(file).unlink())
    with pytest.raises(ConfigError, match=r"root_certificate.*a PEM file that can be used: .*ca\.pem: No such file"):
        asyncio.run(connect("hstreams://127.0.0.1:1", tls={"root_certificate": str(tmp_path / "ca.pem")}))


def test_a_client_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    files = Files(tmp_path)
    (tmp_path / "garbage.pem").write_text("garbage")
    tls = {"client_certificate": str(tmp_path / "garbage.pem"), "client_certificate_key": files.key}
    with pytest.raises(ConfigError, match=r"tls.client_certificate: found .*garbage"):
        asyncio.run(connect("hstreams://127.0.0.1:1", tls=tls))


def test_a_cluster_that_names_addresses_without_end_is_left() -> None:
    ports = iter(range(1, 2_000))

    async def lookup(*_: Any) -> LookupSubscriptionResponse:
        return LookupSubscriptionResponse(server_node=ServerNode(host="127.0.0.1", port=next(ports)))

    async def scenario() -> None:
        async with connected({"LookupSubscription": lookup}) as (_, client):
            for _ in range(500):
                with pytest.raises(SourceUnavailable):
                    await client.list_consumers("f")

    with pytest.raises(RemoteProtocolError, match="more than 1000 addresses"):
        asyncio.run(scenario())
