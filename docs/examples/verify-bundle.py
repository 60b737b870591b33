"""Checks an evidence bundle, all that docs/formats.md says, with Python's own library.

  verify-bundle.py FILE KEY [PROOF_FILE ...]

KEY is the log's public key, NAME+ID+KEY. Ends with 0 if all of it holds, with 4 and what is wrong if
it doesn't.
"""
import base64
import hashlib
import json
import re
import sys
import uuid
from datetime import datetime


class Wrong(Exception):
    pass


def need(holds, what):
    if not holds:
        raise Wrong(what)


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest(value):
    return sha256(canonical(value)).hex()


def fields(value, names, maybe=""):
    need(isinstance(value, dict), f"no object: {value!r}")
    there, names = set(value), set(names.split())
    need(names <= there <= names | set(maybe.split()), f"fields {sorted(there)}, not {sorted(names)}")


def text(value):
    need(isinstance(value, str), f"no text: {value!r}")
    return value


def number(value, bits=64):
    need(re.fullmatch("0|[1-9][0-9]*", text(value)) and int(value) < 1 << bits, f"no number: {value!r}")
    return int(value)


def hash_of(value):
    need(re.fullmatch("[0-9a-f]{64}", text(value)), f"no hash: {value!r}")
    return value


def time(value):
    need(re.fullmatch(r"\d{4}(-\d\d){2}T\d\d(:\d\d){2}\.\d{6}Z", text(value)), f"no time: {value!r}")
    datetime.strptime(value, "%Y-%m-%dT%H:%M:%S.%fZ")


# Ed25519 (RFC 8032), verification only.
P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P


def add(a, b):
    x, y, z, t = a
    u, v, w, s = b
    e, f = (y - x) * (v - u) % P, (y + x) * (v + u) % P
    g, h = 2 * t * s * D % P, 2 * z * w % P
    k, m, n, o = f - e, h - g, h + g, f + e
    return k * m % P, n * o % P, m * n % P, k * o % P


def times(s, point):
    sum_, s = (0, 1, 1, 0), int(s)
    while s:
        if s & 1:
            sum_ = add(sum_, point)
        point, s = add(point, point), s >> 1
    return sum_


def point(raw):
    y = int.from_bytes(raw, "little")
    sign, y = y >> 255, y & (1 << 255) - 1
    need(y < P, "no point of the curve")
    x2 = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(x2, (P + 3) // 8, P)
    if (x * x - x2) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    need((x * x - x2) % P == 0 and (x or not sign), "no point of the curve")
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


BASE = point((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


def is_signed(public, message, signature):
    r, s = signature[:32], int.from_bytes(signature[32:], "little")
    if len(signature) != 64 or s >= L:
        return False
    k = int.from_bytes(hashlib.sha512(r + public + message).digest(), "little") % L
    a, b = times(s, BASE), add(point(r), times(k, point(public)))
    return (a[0] * b[2] - b[0] * a[2]) % P == 0 and (a[1] * b[2] - b[1] * a[2]) % P == 0


def key_id(name, public):
    return sha256(name.encode(), b"\n\1", public)[:4]


def check_signed(body, lines, public, names):
    """One of the lines is by the key, under one of the names or, without names, under any."""
    signed = False
    for line in lines:
        dash, by, signature = text(line).split(" ")
        signature = base64.b64decode(signature, validate=True)
        need(dash == "\u2014" and len(signature) > 4, f"no signature: {line}")
        if (names is None or by in names) and signature[:4] == key_id(by, public):
            need(is_signed(public, body.encode(), signature[4:]), "a signature does not verify")
            signed = True
    need(signed, "no signature is by the key")


def public_of(key):
    name, its_id, public = key.split("+", 2)
    public = base64.b64decode(public)
    need(len(public) == 33 and public[0] == 1, "the key is no Ed25519 key of a log")
    need(key_id(name, public[1:]).hex() == its_id, "the key's id is not its own")
    return name, public[1:]


def checkpoint_of(note, key):
    name, public = public_of(key)
    body, _, signatures = text(note).rpartition("\n\n")
    body += "\n"
    check_signed(body, signatures.removesuffix("\n").split("\n"), public, [name])
    origin, size, root = body.split("\n")[:3]
    return origin, number(size), base64.b64decode(root, validate=True)


def in_log(logged, checkpoint, kinds, of, seq, head):
    fields(logged, "index leaf proof")
    leaf = logged["leaf"]
    fields(leaf, "at hash id kind seq v")
    time(leaf["at"])
    need(leaf["v"] == 1, "an unknown version of a leaf")
    need(leaf["kind"] in kinds and (leaf["id"], leaf["seq"], leaf["hash"]) == (of, str(seq), head),
         f"the leaf is not that of {of} {seq}")
    at, last = number(logged["index"]), checkpoint[1] - 1
    need(at <= last, "the leaf is beyond the checkpoint")
    found = sha256(b"\0", canonical(leaf))
    for other in logged["proof"]:
        need(last > 0, "the proof is too long")
        other = bytes.fromhex(hash_of(other))
        if at & 1 or at == last:
            found = sha256(b"\1", other, found)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            found = sha256(b"\1", found, other)
        at, last = at >> 1, last >> 1
    need(last == 0 and found == checkpoint[2], f"the log has no such leaf of {of}")


def check_events(bundle):
    before = sha256(b"settlenet:request:v1:", bundle["subject"].encode()).hex()
    files = set()
    for seq, given in enumerate(bundle["events"], 1):
        fields(given, "event hash", "private")
        event = given["event"]
        fields(event, "actor actor_broker at kind payload prev_hash request seq v")
        time(event["at"])
        need(event["v"] == 1, f"event {seq}: an unknown version")
        need(event["request"] == bundle["subject"], f"event {seq}: another request's")
        need(event["seq"] == str(seq), f"event {seq}: another in its place")
        need(event["prev_hash"] == before, f"event {seq}: prev_hash")
        need(digest(event) == given["hash"], f"event {seq}: hash")
        before = given["hash"]
        facts = event["payload"]
        need(isinstance(facts, dict), f"event {seq}: payload")
        files.update(facts.get("files_sha256") or [])
        if "private" in given:
            private = given["private"]
            need(digest(private) == facts.get("private_digest"), f"event {seq}: what stands beside it")
            proof = private.get("proof") if isinstance(private, dict) else None
            if isinstance(proof, list):
                agreed = facts.get("proof_digest")
                need(agreed in (None, digest(proof)), f"event {seq}: the proof")
                hashes = [one["sha256"] for one in proof if "sha256" in one]
                need(facts.get("files_sha256") == hashes, f"event {seq}: the files of the proof")
    return before, files


def check_decisions(events, key):
    for given in events:
        event = given["event"]
        if event["kind"] != "decided":
            continue
        lines = event["payload"].get("signatures")
        need(isinstance(lines, list) and len(lines) <= 10, "a decision is not signed")
        facts = {name: value for name, value in event["payload"].items() if name != "signatures"}
        verdict, amount = facts.get("verdict"), facts.get("amount")
        check_signed(
            f"settlenet decision v1\nrequest {event['request']}\nseq {event['seq']}\n"
            f"verdict {verdict if isinstance(verdict, str) else '-'}\n"
            f"amount {amount if isinstance(amount, str) else '-'}\n"
            f"event {digest({**event, 'payload': facts})}\n", lines, public_of(key)[1], None)


def other_side(party):
    return "counterparty" if party == "author" else "author"


def read_story(events):
    """What was agreed, and each completion and correction: (saga, before, counts, entries, settled)."""
    first = events[0]["event"]
    need(first["kind"] == "created", "the first event is no created")
    agreed = first["payload"]
    amount = received = number(agreed["amount"])
    other, bookings = None, []
    for given in events[1:]:
        kind, facts = given["event"]["kind"], given["event"]["payload"]
        need(kind != "created", "created twice")
        if kind in ("accepting", "accepted") and "broker" in facts:
            other = number(facts["broker"])
        if kind == "resend_agreed" or kind == "enforcement_failed" and not bookings:
            received = amount
        if kind == "confirmed" or kind == "enforced" and not bookings:
            received = number(facts["received_amount"])
        if kind == "completed":
            need(not bookings, "completed twice")
            bookings.append((facts["saga"], None, received, facts["entries"], facts.get("settled", [])))
        if kind == "corrected":
            need(bookings and bookings[-1][2], "corrected before it completed")
            counts = number(facts["received_amount"])
            bookings.append((facts["saga"], bookings[-1][2], counts, facts["entries"], []))
    return agreed, {"author": number(agreed["author"]), "counterparty": other}, bookings


def commission_on(agreed, amount):
    if "amount" in agreed:
        return number(agreed["amount"])
    return (amount * number(agreed["basis_points"]) + 5000) // 10000


def owed(agreed, amount):
    """Who owes whom more once `amount` counts: the debtor's side, and how much."""
    if "settles" in agreed:
        return other_side(agreed["settles"]["debtor"]), amount
    debtor, commission = agreed["terms"]["obligation"], agreed["terms"]["commission"]
    if debtor == "none":
        return None, 0
    debtor = {"author_owes": "author", "counterparty_owes": "counterparty"}[debtor]
    if commission:
        more = commission_on(commission, amount)
        amount += more if commission["payer"] == debtor else -more
    return debtor, amount


def account_id(*parts):
    return "AC-" + sha256(*(part.encode() + b"\0" for part in ("AC-", *parts))).hex()[:12]


def entries_due(agreed, sides, before, counts):
    """(book, side, leg, amount, kind, account or None) of each entry that there must be."""
    kind, commission = agreed["type"], agreed["terms"]["commission"]
    sender = {"send": "author", "settlement": agreed.get("settles", {}).get("debtor")}.get(kind, "counterparty")
    name = {"send": "request", "receive": "request", "settlement": "settlement"}.get(kind, "order")
    due = []
    for party, book in sides.items():
        if kind in ("collect", "payout"):
            side = "credit" if kind == "collect" else "debit"
        else:
            side = "debit" if party == sender else "credit"
        legs = [(side, 0, lambda amount: amount, name + ".principal", None)]
        if commission:
            pays = commission["payer"] == party
            own = pays and name != "order" and party == sender
            house = account_id(str(book), "house", "commission", agreed["currency"])
            legs.append(("debit" if pays else "credit", 1, lambda amount: commission_on(commission, amount),
                         name + ".commission", None if own else house))
        for side, leg, of, what, account in legs:
            if before is None:
                due.append((book, side, leg, of(counts), what, account))
            else:
                side = "credit" if side == "debit" else "debit"
                less = of(before) - (of(counts) if counts else 0)
                due.append((book, side, leg, less, "dispute.correction", None))
    return sorted((one for one in due if one[3] > 0), key=lambda one: one[:5])


def check_books(bundle, checkpoint):
    found, last = {}, -1
    for book in bundle["books"]:
        fields(book, "broker segments")
        broker, done = number(book["broker"]), 0
        need(broker > last, "the books are not in order")
        last = broker
        for segment in book["segments"]:
            fields(segment, "entries logged")
            need(segment["entries"], "a part of a chain without entries")
            balances, before = {}, None
            for given in segment["entries"]:
                fields(given, "entry tx_hash", "private")
                entry = given["entry"]
                fields(entry, "account amount at balance broker currency diverted_from kind leg op_digest "
                       "prev_hash private_digest reverses_seq saga seq side step subject v")
                place = f"broker {broker}, entry {entry['seq']}"
                time(entry["at"])
                need(entry["v"] == 1, f"{place}: an unknown version")
                need(entry["broker"] == str(broker), f"{place}: another book's")
                seq = number(entry["seq"])
                need(seq > done if before is None else seq == done + 1, f"{place}: not in its place")
                need(before in (None, entry["prev_hash"]), f"{place}: prev_hash")
                need(digest(entry) == given["tx_hash"], f"{place}: tx_hash")
                need(entry["side"] in ("debit", "credit"), f"{place}: side")
                moved = number(entry["amount"]) * (1 if entry["side"] == "credit" else -1)
                balance = balances.get(entry["account"], int(entry["balance"]) - moved) + moved
                need(str(balance) == entry["balance"] and moved, f"{place}: balance")
                if "private" in given:
                    need(digest(given["private"]) == entry["private_digest"], f"{place}: private")
                balances[entry["account"]], before, done = balance, given["tx_hash"], seq
                if entry["subject"] == bundle["subject"]:
                    found[broker, seq] = given
            in_log(segment["logged"], checkpoint, ("book", "entry"), book["broker"], done, before)
    return found


def check(data, key, files):
    need(len(data) <= 16 << 20, "too long")
    bundle = json.loads(data)
    need(canonical(bundle) == data.removesuffix(b"\n"), "not canonical")
    fields(bundle, "books checkpoint events format logged made_at obligations sha256 subject transfers v")
    need((bundle["format"], bundle["v"]) == ("settlenet.bundle", 1), "an unknown format")
    rest = {name: value for name, value in bundle.items() if name != "sha256"}
    need(digest(rest) == bundle["sha256"], "not as it was written: sha256")
    need(re.fullmatch("[NO]R-[0-9a-f]{12}", bundle["subject"]), "no request or order")
    time(bundle["made_at"])
    checkpoint = checkpoint_of(bundle["checkpoint"], key)
    need(bundle["events"], "no events")
    head, named_files = check_events(bundle)
    check_decisions(bundle["events"], key)
    in_log(bundle["logged"], checkpoint, ("request",), bundle["subject"], len(bundle["events"]), head)
    found = check_books(bundle, checkpoint)
    agreed, sides, bookings = read_story(bundle["events"])
    named, obligations, transfers = set(), [], []
    for saga, before, counts, entries, settled in bookings:
        here = []
        for entry in entries:
            place = number(entry["book"]), number(entry["seq"])
            need(place not in named, f"{place} is named twice")
            named.add(place)
            need(place in found, f"the entry {place} is missing")
            need(found[place]["tx_hash"] == entry["tx_hash"], f"the entry {place} was rewritten")
            here.append(found[place]["entry"])
        here.sort(key=lambda entry: (number(entry["step"]), number(entry["leg"])))
        planned = [{
            "account": entry["diverted_from"] or entry["account"], "amount": entry["amount"],
            "book": entry["broker"], "currency": entry["currency"], "kind": entry["kind"],
            "leg": entry["leg"], "side": entry["side"], "step": entry["step"],
        } for entry in here]
        plan = digest({"entries": planned, "saga": saga, "subject": bundle["subject"], "v": 1})
        need(all((entry["op_digest"], entry["saga"]) == (plan, saga) for entry in here),
             "the entries are not all of the operation")
        due = entries_due(agreed, sides, before, counts)
        booked = sorted((number(entry["broker"]), entry["side"], number(entry["leg"]), number(entry["amount"]),
                         entry["kind"], entry["diverted_from"] or entry["account"]) for entry in here)
        need(len(due) == len(booked) and all(one[:5] == other[:5] and one[5] in (None, other[5])
                                             for one, other in zip(due, booked)), "the entries are not as agreed")
        need(all(entry["currency"] == agreed["currency"] and entry["reverses_seq"] is None for entry in here),
             "the entries are not as agreed")
        total = counts if before is None and "settles" in agreed else 0
        need(before is not None or sum(number(part["amount"]) for part in settled) == total, "settles another sum")
        debtor, amount = owed(agreed, counts if before is None else before)
        if before is not None:
            debtor, amount = debtor and other_side(debtor), amount - (owed(agreed, counts)[1] if counts else 0)
        if not debtor or amount <= 0:
            continue
        owes, claims = str(sides[debtor]), str(sides[other_side(debtor)])
        if before is not None or "settles" not in agreed:
            obligations.append({
                "amount": str(amount), "creditor": claims, "currency": agreed["currency"], "debtor": owes,
                "id": "OB-" + sha256(b"OB-\0", saga.encode(), b"\0").hex()[:12], "saga": saga,
            })
        space = uuid.UUID("7a9f3c1e-5b2d-4e8a-9f6c-3d1e07a2b5c4")
        position = "broker.{}.position." + agreed["currency"]
        transfers.append({
            "amount": str(amount), "credit": position.format(claims), "debit": position.format(owes),
            "hold": str(uuid.uuid5(space, saga + ":0").int), "post": str(uuid.uuid5(space, saga + ":1").int),
            "saga": saga,
        })
    need(set(found) == named, "an entry that no event names")
    need(obligations == bundle["obligations"], "what is owed is not as agreed")
    need(transfers == bundle["transfers"], "the ledger's transfers are not as agreed")
    for name in files:
        with open(name, "rb") as file:
            need(sha256(file.read()).hex() in named_files, f"{name} is none of the files that the events name")
    last = bundle["events"][-1]["event"]["kind"]
    return f"{bundle['subject']}, {len(bundle['events'])} events to {last}, {len(found)} entries"


def main(path, key, *files):
    with open(path, "rb") as file:
        data = file.read()
    try:
        print("holds:", check(data, key, files))
    except (Wrong, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        print("does not hold:", error or type(error).__name__)
        sys.exit(4)


main(*sys.argv[1:])
