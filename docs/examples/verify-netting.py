"""Checks the certificate of a netting round, all that docs/formats.md says, with Python's own library.

  verify-netting.py FILE [ROOT]

Ends with 0 if it holds, with 4 and what is wrong if it doesn't.
"""
import hashlib
import json
import re
import struct
import sys


class Wrong(Exception):
    pass


def need(holds, what):
    if not holds:
        raise Wrong(what)


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def root_of(leaves):
    if len(leaves) < 2:
        return leaves[0] if leaves else sha256()
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return sha256(b"\1", root_of(leaves[:split]), root_of(leaves[split:]))


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def read(line, *fields):
    need(len(line) <= 1024 and line.endswith(b"\n"), "ends, or has a line that is too long")
    value = json.loads(line)
    need(isinstance(value, dict) and sorted(value) == sorted(fields), f"fields of {line}")
    need(all(isinstance(text, str) for text in value.values()), f"not only strings: {line}")
    need(canonical(value) + b"\n" == line, f"not canonical: {line}")
    return value


def number(text, low, bits):
    need(re.fullmatch("0|-?[1-9][0-9]*", text), f"no number: {text}")
    need(low <= int(text) < 1 << bits, f"too small or too large: {text}")
    return int(text)


def check(lines, known):
    line = iter(lines)
    head = read(next(line, b""), "brokers", "cleared", "currency", "format", "obligations", "root",
                "round", "total")
    version = {"settlenet-netting-v1": 1, "settlenet-netting-v2": 2}.get(head["format"])
    need(version, "a format that is not known")
    need(re.fullmatch("[0-9a-f]{64}", head["root"]), "no root")
    need(known in (None, head["root"]), "another root")
    need(re.fullmatch("[A-Z][A-Z0-9-]{1,15}", head["currency"]), "no currency")
    prices, moved, last = {}, {}, -1
    for _ in range(number(head["brokers"], 0, 64)):
        stated = read(next(line, b""), "broker", "price")
        broker = number(stated["broker"], 0, 64)
        need(broker > last, f"broker {broker} is out of order")
        last = broker
        prices[broker] = number(stated["price"], -1 << 63, 63)
        moved[broker] = 0
    inputs, reductions, last, total, cleared = [], b"", "", 0, 0
    for _ in range(number(head["obligations"], 0, 64)):
        stated = read(next(line, b""), "amount", "creditor", "debtor", "id", "reduction")
        name = stated["id"]
        need(re.fullmatch("OB-[0-9a-f]{12}", name) and name > last, f"{name} is out of order")
        last = name
        debtor, creditor = (number(stated[side], 0, 64) for side in ("debtor", "creditor"))
        amount = number(stated["amount"], 1, 64)
        reduction = number(stated.pop("reduction"), 0, 64)
        need(debtor != creditor and reduction <= amount, f"{name} can't be so")
        need(debtor in prices and creditor in prices, f"{name} has a broker without a price")
        worth = 1 + prices[debtor] - prices[creditor]
        need(worth <= 0 or reduction == amount, f"{name} should be cleared in full")
        need(worth >= 0 or reduction == 0, f"{name} should not be cleared")
        moved[debtor] += reduction
        moved[creditor] -= reduction
        total += amount
        cleared += reduction
        numbers = struct.pack(">4Q", int(name[3:], 16), debtor, creditor, amount)
        inputs.append(numbers if version == 2 else canonical(stated))
        reductions += b"%d\n" % reduction
    need(not any(moved.values()), "a net position moves")
    need(total == number(head["total"], 0, 128), "another total")
    need(cleared == number(head["cleared"], 0, 128), "another total is cleared")
    width = 32 if version == 2 else 1
    leaves = [sha256(b"\0", *inputs[at:at + width]) for at in range(0, len(inputs), width)]
    need(root_of(leaves).hex() == head["root"], "the root is not that of the obligations")
    end = read(next(line, b""), "sha256")
    digested = [*lines[:1 + len(prices)], reductions] if version == 2 else lines[:-1]
    need(end["sha256"] == sha256(*digested).hex(), "not the digest of what it covers")
    need(next(line, None) is None, "goes on after its end")
    return f"holds: {cleared} of {total} {head['currency']} cleared, root {head['root']}"


if __name__ == "__main__":
    try:
        with open(sys.argv[1], "rb") as file:
            print(check(file.read().splitlines(True), *sys.argv[2:3] or [None]))
    except (Wrong, ValueError) as error:
        print(f"does not hold: {error}")
        sys.exit(4)
