"""basil peers: identities and roster of a ring of real machines."""

import argparse
from pathlib import Path
from typing import Any

from basil.cli.arguments import add_set
from basil.errors import UserError


def add_peers(commands: Any) -> Any:
    """The options of `basil peers`; returns what further verbs are added to."""
    peers = commands.add_parser("peers", help="a ring of real machines: keys, roster, try-out")
    verbs = peers.add_subparsers(required=True, metavar="VERB")

    init = verbs.add_parser("init", help="make a ring: authority, keys, certificates, roster")
    init.add_argument("--nodes", type=int, metavar="N", help="default: as the recipe says, or 8")
    init.add_argument("--recipe", metavar="RECIPE", help="default: the demo's data, a short run")
    add_set(init)
    init.add_argument(
        "--host", nargs="+", default=["127.0.0.1"], help="one for all (default 127.0.0.1), or each"
    )
    init.add_argument("--port", type=int, default=7400, help="the first (default 7400)")
    init.add_argument(
        "--no-keys",
        action="store_true",
        help="make no nodes: their machines make their keys (basil peers request, then sign)",
    )
    _days(init)
    _verb(init, "init")

    add = verbs.add_parser("add", help="one more member, with keys made here")
    add.add_argument("--address", required=True, metavar="HOST:PORT")
    _days(add)
    _verb(add, "add")

    revoke = verbs.add_parser("revoke", help="nobody is to listen to this member any more")
    revoke.add_argument("--node", type=int, required=True, metavar="ID")
    _verb(revoke, "revoke")

    request = verbs.add_parser("request", help="on the machine: make keys, ask for a certificate")
    request.add_argument("--node", type=int, required=True, metavar="ID")
    request.add_argument("--address", required=True, metavar="HOST:PORT")
    _verb(request, "request", of_node=True)

    sign = verbs.add_parser("sign", help="at the authority: a certificate for a request")
    sign.add_argument("request", metavar="REQUEST", help="request.json of that machine")
    _days(sign)
    _verb(sign, "sign")
    return verbs


def _verb(parser: argparse.ArgumentParser, name: str, of_node: bool = False) -> None:
    what = "the node's folder" if of_node else "the ring's folder"
    parser.add_argument("--dir", required=True, metavar="DIR", help=what)
    parser.set_defaults(command=name, home="basil.cli.peers")


def _days(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--days", type=float, default=90.0, help="how long a certificate is valid (default 90)"
    )


def init(args: argparse.Namespace) -> int:
    """basil peers init --nodes 8 --dir ring/"""
    authority = _authority()
    from basil.recipe import load, to_toml

    if args.recipe:
        size = [] if args.nodes is None else [f"ring.nodes={args.nodes}"]
        recipe = load(args.recipe, [*args.set, *size])
        nodes, text = recipe.ring.nodes, to_toml(recipe)
    else:
        if args.set:
            raise UserError("-s changes a recipe: name one with --recipe")
        nodes = 8 if args.nodes is None else args.nodes
        if not 2 <= nodes <= 200:
            raise UserError(f"--nodes {nodes}: without --recipe it must be from 2 to 200")
        text = authority.demo_recipe(nodes)
    folder = Path(args.dir)
    places = [] if args.no_keys else authority.addresses(nodes, args.host, args.port)
    made = authority.init(folder, text, places, not args.no_keys, args.days)
    print(f"ring {made.run} in {folder}: {len(made.members)} members, roster {made.version}")
    if made.members:
        print(f"try it out  basil peers up --dir {folder}")
    print(f"keep safe   {folder / authority.CA}")
    return 0


def add(args: argparse.Namespace) -> int:
    """basil peers add --dir ring/ --address HOST:PORT"""
    member = _authority().add(Path(args.dir), args.address, args.days)
    print(f"node {member.id} at {member.address}: {Path(args.dir) / f'node-{member.id}'}")
    return 0


def revoke(args: argparse.Namespace) -> int:
    """basil peers revoke --dir ring/ --node 3"""
    made = _authority().revoke(Path(args.dir), args.node)
    print(f"node {args.node} is revoked in roster {made.version}")
    return 0


def request(args: argparse.Namespace) -> int:
    """basil peers request --dir node-3/ --node 3 --address HOST:PORT"""
    path = _authority().request(Path(args.dir), args.node, args.address)
    print(f"hand {path} to the ring's authority: basil peers sign --dir RING {path}")
    return 0


def sign(args: argparse.Namespace) -> int:
    """basil peers sign --dir ring/ REQUEST"""
    out = _authority().sign(Path(args.dir), Path(args.request), args.days)
    print(f"copy the files of {out} into the folder that the request came from")
    return 0


def _authority() -> Any:
    """Imported late: --help should not wait for it, and not everybody has installed it."""
    try:
        from basil.peer.members import authority
    except ModuleNotFoundError as error:
        raise UserError(f"{error.name} is missing: pip install 'basil-fl[peers]'") from error
    return authority
