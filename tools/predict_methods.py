"""Methods for tools/predict: the communication of a bucket, and the memory traffic of the kernels.

An exchange takes a cluster c and a bucket b, and returns its seconds of communication and the bytes that its kernels
read and write (comm/compress, optim/kernels). Options of methods have their defaults.
"""
import collections
import math

Link = collections.namedtuple("Link", "latency rate")  # seconds per message, bytes per second
# intra: link of a worker to the other workers of its node. inter: link of a node. kernels: bytes per second that
# kernels read and write.
Cluster = collections.namedtuple("Cluster", "nodes workers intra inter nccl kernels overlap", defaults=(True,))


# --- Collectives ---


def pairwise(c, group, size):
    """Seconds of the busiest link while every rank of a group sends `size` bytes to every other rank at once."""
    near = {"world": c.workers, "intra": c.workers, "inter": 1}[group] - 1
    far = {"world": (c.nodes - 1) * c.workers, "intra": 0, "inter": c.nodes - 1}[group]
    within = near * (c.intra.latency + size / c.intra.rate)
    return max(within, c.workers * far * (c.inter.latency + size / c.inter.rate))


def through_nodes(c, group, size):
    """Like pairwise(), but a part crosses each node's link once for all workers of the node, as in NCCL's trees and
    rings."""
    if group != "world" or c.nodes == 1:
        return pairwise(c, group, size)
    within = (c.workers - 1) * (c.intra.latency + size * c.nodes / c.intra.rate)
    return max(within, (c.nodes - 1) * (c.inter.latency + size * c.workers / c.inter.rate))


def ranks(c, group):
    return {"world": c.nodes * c.workers, "intra": c.workers, "inter": c.nodes}[group]


def all_to_all(c, group, size):
    """size: bytes of a rank's input."""
    return pairwise(c, group, size / ranks(c, group))


FEW = 16 << 10  # bytes; Transfer::kFew of comm/transport/transfer_mpi.h


def in_rounds(c, group, size):
    """Like pairwise(), but in log2 n rounds. In round i, a rank sends up to 2^i parts of `size` bytes to the rank at
    distance 2^i."""
    seconds, distance, all_ranks = 0, 1, ranks(c, group)
    while distance < all_ranks:
        parts = min(distance, all_ranks - distance) * size
        near = group == "intra" or group == "world" and (distance < c.workers or c.nodes == 1)
        far = {"world": min(distance, c.workers) if c.nodes > 1 else 0, "intra": 0, "inter": c.workers}[group]
        seconds += max(near * (c.intra.latency + parts / c.intra.rate), far * (c.inter.latency + parts / c.inter.rate))
        distance *= 2
    return seconds


def fits_rounds(c, group, size):
    return ranks(c, group) // 2 * size <= FEW


def all_gather(c, group, size):
    """size: bytes of a rank's output."""
    part = size / ranks(c, group)
    if c.nccl:
        return through_nodes(c, group, part)
    return (in_rounds if ranks(c, group) > 4 and fits_rounds(c, group, part) else pairwise)(c, group, part)


def reduce_scatter(c, group, size):
    """size: bytes of a rank's input."""
    return (through_nodes if c.nccl else pairwise)(c, group, size / ranks(c, group))


def all_reduce(c, group, size):
    """Over MPI, in one round (an all-gather) or in two, as in MpiGroup::do_all_reduce."""
    count, two = ranks(c, group), 2 * reduce_scatter(c, group, size)
    if c.nccl or count * size > 64 << 10:
        return two
    one = all_gather(c, group, count * size)
    return one if count * size <= 8 << 10 or count >= 16 and fits_rounds(c, group, size) else min(one, two)


# --- Methods ---

# Bytes that an update reads and writes per value: gradient, parameter and state.
UPDATES = {"sgd": 12, "sgdm": 20, "adam": 28}


def dense(c, b):
    return all_reduce(c, "world", 4 * b.padded), 0


def dense_half(c, b):
    size = 2 * b.padded
    return all_to_all(c, "world", size) + all_gather(c, "world", size), 12 * b.numel + 6 * b.numel


def hierarchical(c, b, wire=4):
    part = b.padded / c.workers
    between = all_to_all(c, "inter", wire * part) + all_gather(c, "inter", wire * part)
    if wire == 4:
        between = all_reduce(c, "inter", 4 * part)
    within = reduce_scatter(c, "intra", 4 * b.padded) + all_gather(c, "intra", 4 * b.padded)
    return within + between, 0 if wire == 4 else 18 * part


def birder(c, b):
    """Hierarchical-1-bit-All-Reduce."""
    part = b.padded / c.workers
    seconds = reduce_scatter(c, "intra", 4 * b.padded) + all_gather(c, "intra", b.padded / 8)
    seconds += all_to_all(c, "inter", part / 8) + all_gather(c, "inter", part / 8)
    return seconds, 28 * part + (8 + c.nodes / 8) * part / c.nodes


def birder_naive(c, b):
    world = ranks(c, "world")
    return all_gather(c, "world", world * b.padded / 8), (28 + 8 + world / 8) * b.padded


def to_owners(up, down, worker, scale=0):
    """Codes of `up` bytes per value to the owners, and means of `down` bytes per value back. worker: bytes per value of
    the worker's kernel, excluding the code. scale: bytes per value that every rank first sends to all others."""

    def exchange(c, b):
        world = ranks(c, "world")
        seconds = all_to_all(c, "world", up * b.numel) + all_gather(c, "world", down * b.numel)
        if scale:
            seconds += all_gather(c, "world", world * scale * b.numel)
        owner = up + (12 + down) / world  # reads all codes; updates mean and error
        return seconds, (worker + up + owner + down + 4) * b.numel

    return exchange


def gathered(size, worker):
    """Codes of `size` bytes per value from every worker to all others."""

    def exchange(c, b):
        world = ranks(c, "world")
        return all_gather(c, "world", world * size * b.numel), (worker + world * size + 4) * b.numel

    return exchange


def random_k(c, b):
    return all_reduce(c, "world", 0.04 * b.numel), 20 * b.numel


def power_sgd(c, b, rank=4):
    rows = columns = rest = matrices = 0
    for shape in b.shapes:
        first, others = shape[0], math.prod(shape[1:])
        if len(shape) < 2 or rank * (first + others) >= first * others:
            rest += first * others
        else:
            rows, columns, matrices = rows + rank * first, columns + rank * others, matrices + first * others
    return all_reduce(c, "world", 4 * (rows + rest)) + all_reduce(c, "world", 4 * columns), 28 * matrices


SIGNS = to_owners(1 / 8 + 4 / 4096, 1 / 8 + 4 / 4096, 16)


def loco(c, b):
    width = 1 if ranks(c, "world") <= 16 else 2  # bytes of the returned sums
    return to_owners(0.5, width, 6, scale=2 / 1024)(c, b)


def always(exchange, update=None):
    """An exchange in every step. update: bytes per value; None: those of --optimizer."""
    return lambda options: [(1, exchange, update or UPDATES[options.optimizer])]


def one_bit_adam(options):
    """Dense up to the end of the warm-up, then signs of momenta."""
    first = dense if options.warm_up_wire == "f32" else dense_half
    return [(options.warm_up, first, UPDATES["adam"]), (1 - options.warm_up, lambda c, b: add(SIGNS(c, b), (0, 12 * b.numel)), 16)]


def zero_one_adam(options):
    """46 % of the steps synchronize (0/1 Adam paper, abstract: 54 % fewer rounds); the others communicate nothing."""
    local = lambda c, b: (0, 20 * b.numel)
    return [(0.46, lambda c, b: add(SIGNS(c, b), local(c, b)), UPDATES["adam"]), (0.54, local, 16)]


def add(a, b):
    return a[0] + b[0], a[1] + b[1]


# For each name: the kinds of steps of a run, as (fraction of the steps, exchange, bytes per value of the update).
METHODS = {
    "dense": always(dense),
    "dense_bf16": always(dense_half),
    "dense_int8": always(to_owners(1 + 4 / 1024, 1 + 4 / 1024, 4)),
    "hierarchical": always(hierarchical),
    "hierarchical_bf16": always(lambda c, b: hierarchical(c, b, wire=2)),
    "birder": always(birder, 8 + 1 / 8),
    "birder_naive": always(birder_naive, 8 + 1 / 8),
    "one_bit_adam": one_bit_adam,
    "one_bit_lamb": one_bit_adam,
    "zero_one_adam": zero_one_adam,
    "qsgd": always(to_owners(0.5 + 4 / 1024, 4, 4)),
    "terngrad": always(to_owners(0.25 + 4 / 1024, 4, 4)),
    "one_bit_sgd": always(to_owners(1 / 8 + 8 / 1024, 1 / 8 + 8 / 1024, 12)),
    "ef_signsgd": always(SIGNS),
    "signsgd": always(to_owners(1 / 8, 1 / 8, 4)),
    "topk": always(gathered(0.08, 12)),
    "ef21": always(gathered(0.08, 20)),
    "randomk": always(random_k),
    "powersgd": always(power_sgd),
    "loco": always(loco),
    "zeropp": always(to_owners(0.5 + 4 / 1024, 1 + 4 / 1024, 4)),
    "loco_zeropp": always(to_owners(0.5, 1 + 4 / 1024, 6, scale=2 / 1024)),
}
