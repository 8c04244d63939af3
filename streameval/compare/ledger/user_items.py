"""How single impressions move the AUC of users (see `user_aucs`), by block of items: for errors clustered by item.

A user's AUC is the mean over clicks of their place among the non-clicks, and likewise the mean over non-clicks of theirs
among the clicks. So to first order it is moved by both, as the AUC of all impressions is (Obuchowski 1997, Biometrics
53:567): an impression that counts c times, of n with its label, in a row of weight w, adds

    w_i = w c / n,    a_i = w_i (its place by the other's scores less that by the server's)

Sum a_i = 2 sum w D and sum w_i = 2 sum w, because every pair is on both sides; GAUC moves by (a_i - theta w_i) / sum w. A
version that is wrong about an item moves its clicks and its non-clicks in opposite directions, and most of that cancels; so
both are needed also of users with a single click.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches import blocks
from streameval.sketches.blocks import GAUC_CELLS, GAUC_ITEM_SCALARS, GAUC_OF_ITEMS, NO_ITEM, SCALE

FEW_OF_A_USER = 32  # clicks or non-clicks of a user, up to which all pairs are compared: faster than sorting


@numba.njit(inline="always")
def find_places(
    entries: NDArray[np.uint32], copies: NDArray[np.uint32], clicks: int, place: NDArray[np.float64]
) -> None:
    """Fills place[i], of entries score << 1 | label, clicks first: twice the non-clicks below a click, or twice the clicks
    above a non-click; a tie counts 1 of 2. Entries count `copies` times; empty: once each.
    """
    if copies.size or min(clicks, entries.size - clicks) > FEW_OF_A_USER:
        _places_in_order(entries, copies, clicks, place)
        return
    above = np.zeros(entries.size - clicks, np.int32)
    for i in range(clicks):
        below, strictly = np.int32(0), entries[i] ^ np.uint32(1)
        for j in range(above.size):
            one = np.int32(strictly > entries[clicks + j]) + np.int32(entries[i] > entries[clicks + j])
            below += one
            above[j] += one
        place[i] = below
    for j in range(above.size):
        place[clicks + j] = above[j]


@numba.njit(inline="always")
def _places_in_order(
    entries: NDArray[np.uint32], copies: NDArray[np.uint32], clicks: int, place: NDArray[np.float64]
) -> None:
    order = np.argsort(entries)
    below, above, start = 0.0, float(copies[:clicks].sum() if copies.size else clicks), 0
    while start < order.size:
        key, end, clicked, others = entries[order[start]] >> np.uint32(1), start, 0.0, 0.0
        while end < order.size and entries[order[end]] >> np.uint32(1) == key:
            many = float(copies[order[end]]) if copies.size else 1.0
            if order[end] < clicks:
                clicked += many
            else:
                others += many
            end += 1
        above -= clicked
        for k in order[start:end]:
            place[k] = 2.0 * below + others if k < clicks else 2.0 * above + clicked
        below += others
        start = end


@numba.njit(inline="always")
def add_by_item(
    place: NDArray[np.float64],
    item: NDArray[np.uint32],
    copies: NDArray[np.uint32],
    labels: tuple[int, int, int],
    out: NDArray[np.int64],
) -> None:
    """Adds how a user's impressions move the AUC to the last cells of `out`. `place`: float64[2, n], by the server's scores
    and by the other's; `item`: their blocks; `labels`: the entries that are clicks, then how many clicks and non-clicks these
    stand for.
    """
    first, of_clicks, of_others = labels
    n, scalars = of_clicks + of_others, out.size - GAUC_OF_ITEMS
    squares, products, weights = np.int64(0), np.int64(0), np.int64(0)
    for begin, end, mine, rest in ((0, first, of_clicks, of_others), (first, item.size, of_others, of_clicks)):
        weight, share = n / mine, 0.5 * n / mine / rest
        for k in range(begin, end):
            cell = scalars + GAUC_ITEM_SCALARS + np.int64(item[k]) * GAUC_CELLS
            if item[k] == NO_ITEM:
                continue
            many = float(copies[k]) if copies.size else 1.0
            w, a = many * weight, many * share * (place[1, k] - place[0, k])
            out[cell + blocks.G_W] += np.int64(np.rint(w * SCALE))
            out[cell + blocks.G_WD] += np.int64(np.rint(a * SCALE))
            squares += np.int64(np.rint(a * a * SCALE))
            products += np.int64(np.rint(a * w * SCALE))
            weights += np.int64(np.rint(w * w))  # as those of users: a sampled log has large ones
    out[scalars + blocks.G_WD_SQ] += squares
    out[scalars + blocks.G_W_WD] += products
    out[scalars + blocks.G_W_SQ] += weights
