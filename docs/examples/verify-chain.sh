#!/bin/sh
# Recomputes an exported chain with nothing but a shell and sha256sum, to show how little it
# takes: links and hashes. It leaves out what `settlenet verify chain` checks besides (balances,
# doubled entries, spelling, free text).
#
#   verify-chain.sh FILE BROKER [SEQ:HASH]
#
# Ends with 0 if the links hold, with 4 and the first bad seq if they don't.
file=$1 broker=$2 known=$3

sha256() { sha256sum | cut -d' ' -f1; }
bad() { echo "first bad seq: $seq ($1)"; exit 4; }

prev=$(printf 'settlenet:chain:v1:%s' "$broker" | sha256)
seq=1
while IFS= read -r line || [ -n "$line" ]; do
    # The entry is the object after {"entry": and has no other object in it.
    entry=${line#'{"entry":'}
    entry="${entry%%\}*}}"
    case $entry in *"\"broker\":\"$broker\","*) ;; *) bad "broker" ;; esac
    case $entry in *"\"seq\":\"$seq\","*) ;; *) bad "gap" ;; esac
    case $entry in *"\"prev_hash\":\"$prev\","*) ;; *) bad "prev_hash" ;; esac
    hash=$(printf '%s' "$entry" | sha256)
    case $line in *",\"tx_hash\":\"$hash\"}") ;; *) bad "tx_hash" ;; esac
    case $known in "$seq:$hash") known= ;; "$seq:"*) bad "rewritten" ;; esac
    prev=$hash
    seq=$((seq + 1))
done <"$file"
[ -z "$known" ] || bad "cut tail"
echo "holds: $((seq - 1)) entries, head $((seq - 1)):$prev"
