"""Fused 3 x 3 convolution, 2 x 2 max pooling and ReLU, forward and backward, image by image.

Images are stored channels last, so that the three pixels under one row of a kernel are contiguous: 3 x channels
values. The forward pass keeps an image in cache and writes a quarter of its pixels. In the backward pass the gradient
is sparse: only pixels that were the maximum of their four and above 0 have one, less than a quarter. They are put
on lists, and nothing is computed for the others.

The innermost loops are written in LLVM IR, because compilers do not find this register blocking by themselves:
tiles of accumulators that stay in registers. They and the kernels share one file, because numba recompiles cached
machine code only when the file of its kernel has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import extending
from numba.core import cgutils, types

from covey.compiled import compiled

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint8]

#: SIMD lanes of a vector.
LANES = 8
#: Output channels of a register tile.
PANEL = 2 * LANES
#: Rows of a register tile: with two accumulators each, they fill the vector registers.
ROWS = 6
#: Values of an image that fit into the L1 cache beside everything else.
_L1_VALUES = 6 << 10
#: The code of a pooling window in which no pixel is above 0.
NOTHING = 4
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_CODES = ir.VectorType(ir.IntType(32), LANES)
_ZERO = ir.Constant(_VECTOR, [0.0] * LANES)
#: Allows fused multiply-add.
_FUSED = ("contract",)
#: Masks the sign bit of a float32, and the bits of infinity: larger ones are NaN.
_MAGNITUDE, _INFINITY = np.int32(0x7FFFFFFF), np.int32(0x7F800000)


class _Block:
    """Emits the instructions of an intrinsic; array arguments are given by their index."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self.builder = builder
        self._data = [
            context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else None
            for kind, value in zip(signature.args, arguments, strict=True)
        ]

    def offset(self, start: Any, step: Any, times: int) -> Any:
        """start + times x step."""
        return self.builder.add(start, self.builder.mul(step, step.type(times)))

    def number(self, array: int, index: Any) -> Any:
        """Load one element of an array."""
        return self.builder.load(self.builder.gep(self._data[array], [index]))

    def vector(self, array: int, index: Any, further: int = 0) -> Any:
        """Load a vector of an array, `further` vectors after an index."""
        return self.builder.load(self._place(array, index, _VECTOR, further), align=4)

    def spread(self, number: Any) -> Any:
        """Broadcast a scalar to a vector."""
        first = self.builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), number, ir.IntType(32)(0))
        return self.builder.shuffle_vector(first, first, ir.Constant(_CODES, [0] * LANES))

    def write(self, value: Any, array: int, index: Any, align: int = 4) -> None:
        """Store a scalar or a vector at an index of an array."""
        self.builder.store(value, self._place(array, index, value.type, 0), align=align)

    def sums(self, first: Sequence[Any]) -> list[Any]:
        """Vector accumulators, which the compiler keeps in registers."""
        places = []
        for value in first:
            places.append(cgutils.alloca_once(self.builder, _VECTOR))  # type: ignore[no-untyped-call]
            self.builder.store(value, places[-1])
        return places

    def read(self, sums: Sequence[Any]) -> list[Any]:
        """The values of accumulators."""
        return [self.builder.load(place) for place in sums]

    def add_product(self, left: Any, right: Any, total: Any) -> None:
        """Add a product of vectors to an accumulator."""
        product = self.builder.fmul(left, right, flags=_FUSED)
        self.builder.store(self.builder.fadd(product, self.builder.load(total), flags=_FUSED), total)

    @contextmanager
    def loop(self, count: Any) -> Iterator[Any]:
        """A loop over 0 to `count` - 1; yields the index."""
        with cgutils.for_range(self.builder, count) as loop:
            yield loop.index

    def add_panel(
        self, sums: Sequence[Any], left: int, begins: Sequence[Any], length: Any, right: int, at: Any
    ) -> None:
        """Add rows of `left` times the panel of `right` at index `at` to the accumulators, two per row."""
        builder = self.builder
        with self.loop(length) as index:
            row = builder.add(at, builder.mul(index, index.type(PANEL)))
            factors = [self.vector(right, row, half) for half in (0, 1)]
            for number, begin in enumerate(begins):
                value = self.spread(self.number(left, builder.add(begin, index)))
                for half in (0, 1):
                    self.add_product(value, factors[half], sums[2 * number + half])

    def add_listed(self, first: Any, count: Any, array: int, begins: Sequence[Any], width: int) -> list[Any]:
        """Sums over the entries (value, place) of list array 0: value times `width` vectors at place + each begin."""
        builder = self.builder
        sums = self.sums([_ZERO] * (len(begins) * width))
        with self.loop(count) as index:
            entry = builder.mul(builder.add(first, index), index.type(2))
            behind = self._place(0, builder.add(entry, entry.type(1)), ir.IntType(32), 0)
            value, place = self.spread(self.number(0, entry)), builder.sext(builder.load(behind), entry.type)
            starts = [builder.add(place, begin) for begin in begins]
            for number, total in enumerate(sums):
                self.add_product(value, self.vector(array, starts[number // width], number % width), total)
        return self.read(sums)

    def append(self, at: Any, number: Any, place: Any, lists: tuple[int, int], slots: Any) -> None:
        """Append gradient `at` and a place to list `number` in arrays of entries and counts, unless it is `NOTHING`.

        The arrays 0 and 1 are gradients and codes. An entry is a gradient followed by the bits of its place.
        """
        builder = self.builder
        bits = builder.zext(builder.load(self._place(0, at, ir.IntType(32), 0), align=4), place.type)
        count = self.number(lists[1], number)
        matters = builder.icmp_unsigned("<", self.number(1, at), ir.IntType(8)(NOTHING))
        slot = builder.mul(builder.add(builder.mul(number, slots), count), count.type(2))
        # Written unconditionally and counted only if it matters: the branch would be unpredictable.
        self.write(builder.or_(bits, builder.shl(place, place.type(32))), lists[0], slot)
        self.write(builder.add(count, builder.zext(matters, count.type)), lists[1], number, align=8)

    def pool(self, four: Sequence[Any], largest: int, codes: int, target: Any) -> None:
        """Write the maximum of four vectors after ReLU, and its index or `NOTHING`, to `target` in two arrays."""
        builder = self.builder
        best, code = four[0], ir.Constant(_CODES, [0] * LANES)
        for pixel in (1, 2, 3):
            other = four[pixel]
            # NaN propagates, as in PyTorch.
            wins = builder.or_(builder.fcmp_ordered(">", other, best), builder.fcmp_unordered("uno", other, other))
            best = builder.select(wins, other, best)
            code = builder.select(wins, ir.Constant(_CODES, [pixel] * LANES), code)
        nothing = builder.fcmp_ordered("<=", best, _ZERO)
        code = builder.select(nothing, ir.Constant(_CODES, [NOTHING] * LANES), code)
        self.write(builder.select(nothing, _ZERO, best), largest, target)
        self.write(builder.trunc(code, ir.VectorType(ir.IntType(8), LANES)), codes, target, align=1)

    def _place(self, array: int, index: Any, kind: Any, further: int) -> Any:
        pointer = self.builder.bitcast(self.builder.gep(self._data[array], [index]), kind.as_pointer())
        return self.builder.gep(pointer, [index.type(further)])


def _intrinsic(typed: Callable[..., Any]) -> Callable[..., None]:
    """A numba intrinsic from a function that returns signature and code generator for its argument types."""
    return cast(Callable[..., None], extending.intrinsic(typed))


def _code(kinds: Sequence[Any], write: Callable[..., None]) -> tuple[Any, Callable[..., Any]]:
    """Signature and code generator of a void intrinsic; `write(block, *arguments)` emits its instructions."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        write(_Block(context, builder, signature, arguments), *arguments)
        return context.get_dummy_value()

    return types.void(*kinds), generate


@_intrinsic
def _pooled_tile(typing: Any, image: Any, start: Any, stride: Any, step: Any, weights: Any, panel: Any, bias: Any,
                 channel: Any, largest: Any, codes: Any, target: Any) -> Any:  # fmt: skip
    """Convolve and pool 2 x 2 pixels for a panel of channels; image row stride `stride`, pixel stride `step`."""

    def write(block: _Block, _: Any, start: Any, stride: Any, step: Any, *rest: Any) -> None:
        panel, channel, target = rest[1], rest[3], rest[6]
        sums = block.sums([block.vector(6, channel, half) for _ in range(4) for half in (0, 1)])
        length = block.builder.mul(step, step.type(3))
        for row in range(3):
            lines = [block.offset(start, stride, row + down) for down in (0, 1)]
            begins = [block.offset(line, step, right) for line in lines for right in (0, 1)]
            block.add_panel(sums, 0, begins, length, 4, block.offset(panel, length, row * PANEL))
        for half in (0, 1):
            block.pool(block.read(sums[half::2]), 8, 9, block.offset(target, target.type(LANES), half))

    return _code((image, start, stride, step, weights, panel, bias, channel, largest, codes, target), write)


@_intrinsic
def _transform(typing: Any, image: Any, corner: Any, stride: Any, step: Any, turned: Any, target: Any,
               apart: Any) -> Any:  # fmt: skip
    """Winograd input transform of 4 x 4 pixels, 8 channels each, to 16 vectors with stride `apart`."""

    def write(block: _Block, _: Any, corner: Any, stride: Any, step: Any, turned: Any, target: Any, apart: Any) -> None:
        add, subtract = block.builder.fadd, block.builder.fsub

        def turn(line: Sequence[Any]) -> list[Any]:
            one, two, three, four = line
            return [subtract(one, three), add(two, three), subtract(three, two), subtract(two, four)]

        lines = [block.offset(corner, stride, row) for row in range(4)]
        rows = [turn([block.vector(0, block.offset(line, step, column)) for column in range(4)]) for line in lines]
        columns = [turn(column) for column in zip(*rows, strict=True)]
        for number in range(16):
            block.write(columns[number % 4][number // 4], 4, block.offset(target, apart, number))

    return _code((image, corner, stride, step, turned, target, apart), write)


@_intrinsic
def _product(typing: Any, left: Any, start: Any, length: Any, right: Any, panel: Any, product: Any, target: Any,
             apart: Any) -> Any:  # fmt: skip
    """`ROWS` rows of `left` of this `length`, times a panel of `right`, to rows with stride `apart`."""

    def write(block: _Block, _: Any, start: Any, length: Any, *rest: Any) -> None:
        panel, target, apart = rest[1], rest[3], rest[4]
        sums = block.sums([_ZERO] * (2 * ROWS))
        block.add_panel(sums, 0, [block.offset(start, length, row) for row in range(ROWS)], length, 3, panel)
        for number, value in enumerate(block.read(sums)):
            row = block.offset(target, apart, number // 2)
            block.write(value, 5, block.offset(row, row.type(LANES), number % 2))

    return _code((left, start, length, right, panel, product, target, apart), write)


@_intrinsic
def _pool_back(typing: Any, product: Any, start: Any, apart: Any, bias: Any, channel: Any, largest: Any, codes: Any,
               target: Any) -> Any:  # fmt: skip
    """Winograd output transform of 16 vectors with stride `apart` to 2 x 2 pixels, which are pooled."""

    def write(block: _Block, _: Any, start: Any, apart: Any, *rest: Any) -> None:
        channel, target = rest[1], rest[4]
        add, subtract = block.builder.fadd, block.builder.fsub

        def turn(line: Sequence[Any]) -> list[Any]:
            one, two, three, four = line
            return [add(one, add(two, three)), subtract(subtract(two, three), four)]

        values = [block.vector(0, block.offset(start, apart, number)) for number in range(16)]
        rows = [turn(values[begin : begin + 4]) for begin in (0, 4, 8, 12)]
        columns = [turn(column) for column in zip(*rows, strict=True)]
        bias = block.vector(3, channel)
        block.pool([add(columns[right][down], bias) for down in (0, 1) for right in (0, 1)], 5, 6, target)

    return _code((product, start, apart, bias, channel, largest, codes, target), write)


@_intrinsic
def _list_by_channel(typing: Any, gradients: Any, codes: Any, begin: Any, depth: Any, corner: Any, steps: Any,
                     entries: Any, counts: Any, slots: Any) -> Any:  # fmt: skip
    """Append a pooled pixel's gradients to the lists of their channels, with the places of the winning pixels."""

    def write(block: _Block, _: Any, codes: Any, begin: Any, depth: Any, corner: Any, *rest: Any) -> None:
        builder = block.builder
        with block.loop(depth) as channel:
            at = builder.add(begin, channel)
            code = builder.zext(block.number(1, at), begin.type)
            block.append(at, channel, builder.add(corner, block.number(5, code)), (6, 7), rest[3])

    return _code((gradients, codes, begin, depth, corner, steps, entries, counts, slots), write)


@_intrinsic
def _list_by_pixel(typing: Any, gradients: Any, codes: Any, begin: Any, depth: Any, entries: Any,
                   counts: Any, window: Any, size: Any) -> Any:  # fmt: skip
    """Append a pooled pixel's gradients to the lists of the winning pixels, with the places of their kernels."""

    def write(block: _Block, _: Any, codes: Any, begin: Any, depth: Any, *rest: Any) -> None:
        builder, (window, size) = block.builder, rest[2:]
        with block.loop(depth) as channel:
            at = builder.add(begin, channel)
            pixel = block.offset(builder.zext(block.number(1, at), begin.type), window, 4)
            block.append(at, pixel, builder.mul(channel, size), (4, 5), depth)

    return _code((gradients, codes, begin, depth, entries, counts, window, size), write)


def _gather(width: int) -> Callable[..., None]:
    """An intrinsic that adds image rows at the places of a list to `sums`: three rows of `width` vectors each."""

    @_intrinsic
    def gather(typing: Any, entries: Any, first: Any, count: Any, image: Any, start: Any, stride: Any, sums: Any,
               target: Any, apart: Any) -> Any:  # fmt: skip
        def write(block: _Block, _: Any, first: Any, count: Any, image: Any, *rest: Any) -> None:
            start, stride, _, target, apart = rest
            begins = [block.offset(start, stride, row) for row in range(3)]
            for number, value in enumerate(block.add_listed(first, count, 3, begins, width)):
                row = block.offset(target, apart, number // width)
                at = block.offset(row, row.type(LANES), number % width)
                block.write(block.builder.fadd(block.vector(6, at), value), 6, at)

        return _code((entries, first, count, image, start, stride, sums, target, apart), write)

    return gather


def _scatter(width: int) -> Callable[..., None]:
    """An intrinsic that sums the kernels of a list, `width` vectors of three pixels, and adds them to an image."""

    @_intrinsic
    def scatter(typing: Any, entries: Any, first: Any, count: Any, weights: Any, start: Any, step: Any, image: Any,
                corner: Any) -> Any:  # fmt: skip
        def write(block: _Block, _: Any, first: Any, count: Any, weights: Any, *rest: Any) -> None:
            start, step, _, corner = rest
            begins = [block.offset(start, step, pixel) for pixel in range(3)]
            for number, value in enumerate(block.add_listed(first, count, 3, begins, width)):
                pixel = block.offset(corner, step, number // width)
                at = block.offset(pixel, pixel.type(LANES), number % width)
                block.write(block.builder.fadd(block.vector(6, at), value), 6, at)

        return _code((entries, first, count, weights, start, step, image, corner), write)

    return scatter


_gather_4, _gather_2, _gather_1 = _gather(4), _gather(2), _gather(1)
_scatter_4, _scatter_2, _scatter_1 = _scatter(4), _scatter(2), _scatter(1)


@compiled
def _aligned(size: int) -> Floats:
    """`size` zeros, aligned to a cache line."""
    numbers = np.zeros(size + 16, dtype=np.float32)
    begin = (-numbers.ctypes.data % 64) // 4
    return numbers[begin : begin + size]


@compiled
def _put_into(frame: Floats, image: Floats) -> None:
    """Copy an `image` (h, w, c) into the interior of a flat `frame` of h + 2 rows of w + 2 pixels: zero padding."""
    height, width, channels = image.shape
    stride = (width + 2) * channels
    for row in range(height):
        begin = (row + 1) * stride + channels
        frame[begin : begin + width * channels] = image[row].ravel()


@compiled
def _is_finite(image: Floats) -> bool:
    """Whether all of an image is finite, tested on the bit patterns, which the compiler vectorises."""
    worst = np.int32(0)
    for pattern in image.view(np.int32).ravel():
        worst = max(worst, pattern & _MAGNITUDE)
    return bool(worst < _INFINITY)


@compiled
def pooled_direct(images: Floats, panels: Floats, bias: Floats, largest: Floats, codes: Codes) -> None:
    """Fill `largest` (n, h // 2, w // 2, p) with the pooled outputs and `codes`, uint8, with the argmax of each window.

    `images` are (n, h, w, c), `bias` (p,), and `panels` (p / 16, 9 c, 16) weights: kernel rows, columns, channels.
    """
    samples, height, width, channels = images.shape
    high, wide, depth = largest.shape[1:]
    stride = (width + 2) * channels
    frame = _aligned((height + 2) * stride)
    flat_weights, flat_largest, flat_codes = panels.ravel(), largest.ravel(), codes.ravel()
    for sample in range(samples):
        _put_into(frame, images[sample])
        for panel in range(panels.shape[0]):
            for row in range(high):
                for column in range(wide):
                    _pooled_tile(
                        frame, 2 * row * stride + 2 * column * channels, stride, channels,
                        flat_weights, panel * 9 * channels * PANEL, bias, panel * PANEL,
                        flat_largest, flat_codes, ((sample * high + row) * wide + column) * depth + panel * PANEL,
                    )  # fmt: skip


@compiled
def pooled_winograd(images: Floats, panels: Floats, bias: Floats, largest: Floats, codes: Codes) -> None:
    """The results of `pooled_direct` with fewer multiplications, for images whose channels are a multiple of 8.

    `panels` (16, p / 16, c, 16) are the weights after Winograd's transform.
    """
    samples, height, width, channels = images.shape
    high, wide, depth = largest.shape[1:]
    stride, tiles = (width + 2) * channels, -(-high * wide // ROWS) * ROWS
    frame = _aligned((height + 2) * stride)
    turned, product = _aligned(16 * tiles * channels), _aligned(16 * tiles * depth)
    flat_weights, flat_largest, flat_codes = panels.ravel(), largest.ravel(), codes.ravel()
    for sample in range(samples):
        _put_into(frame, images[sample])
        for tile in range(high * wide):
            corner = 2 * (tile // wide) * stride + 2 * (tile % wide) * channels
            for channel in range(0, channels, LANES):
                target = tile * channels + channel
                _transform(frame, corner + channel, stride, channels, turned, target, tiles * channels)
        for part in range(16):
            for panel in range(panels.shape[1]):
                weight = (part * panels.shape[1] + panel) * channels * PANEL
                for tile in range(part * tiles, (part + 1) * tiles, ROWS):
                    _product(
                        turned, tile * channels, channels, flat_weights, weight,
                        product, tile * depth + panel * PANEL, depth,
                    )  # fmt: skip
        for tile in range(high * wide):
            target = (sample * high * wide + tile) * depth
            for channel in range(0, depth, LANES):
                _pool_back(
                    product, tile * depth + channel, tiles * depth, bias, channel,
                    flat_largest, flat_codes, target + channel,
                )  # fmt: skip


@compiled
def weight_gradients(images: Floats, gradients: Floats, codes: Codes, formed: Floats, bias_rows: Floats) -> None:
    """Fill `formed` (n, p, 9 c) and `bias_rows` (n, p) with every sample's gradients of weights and bias.

    `gradients` (n, h // 2, w // 2, p) are those of the pooled pixels, and `codes` come from the forward pass.
    The gradients of non-finite images are NaN.
    """
    samples, height, width, channels = images.shape
    high, wide, depth = codes.shape[1:]
    stride, length = (width + 2) * channels, 3 * channels
    room = -(-length // LANES) * LANES
    # Vector loads reach past the last row; these lanes are not used.
    frame, rows = _aligned((height + 2) * stride + room), _aligned(depth * 3 * room)
    # A band of rows that stays in the L1 cache.
    band = min(high, max(1, (_L1_VALUES // stride - 2) // 2))
    slots = band * wide + 1
    entries = _aligned(2 * depth * slots)
    counts, steps = np.zeros(depth, dtype=np.int64), np.array([0, channels, stride, stride + channels, 0])
    flat_gradients, flat_codes = gradients.ravel(), codes.ravel()
    for sample in range(samples):
        _put_into(frame, images[sample])
        own = formed[sample].ravel()
        sums = own if room == length else rows
        sums[:] = 0.0
        bias_rows[sample] = 0.0
        for top in range(0, high, band):
            counts[:] = 0
            for row in range(top, min(top + band, high)):
                for column in range(wide):
                    _list_by_channel(
                        flat_gradients, flat_codes, ((sample * high + row) * wide + column) * depth, depth,
                        2 * row * stride + 2 * column * channels, steps, entries, counts, slots,
                    )  # fmt: skip
            for channel in range(depth):
                first, count = channel * slots, counts[channel]
                total = np.float32(0.0)
                for index in range(first, first + count):
                    total += entries[2 * index]
                bias_rows[sample, channel] += total
                at, target = 0, 3 * room * channel
                while at < room:
                    if room - at >= 4 * LANES:
                        _gather_4(entries, first, count, frame, at, stride, sums, target + at, room)
                        at += 4 * LANES
                    elif room - at >= 2 * LANES:
                        _gather_2(entries, first, count, frame, at, stride, sums, target + at, room)
                        at += 2 * LANES
                    else:
                        _gather_1(entries, first, count, frame, at, stride, sums, target + at, room)
                        at += LANES
        if room > length:
            for line in range(3 * depth):
                own[line * length : (line + 1) * length] = rows[line * room : line * room + length]
        if not _is_finite(images[sample]):
            # A pixel without gradient would hide it: 0 x infinity is NaN.
            own[:] = np.nan


@compiled
def image_gradients(gradients: Floats, codes: Codes, kernels: Floats, found: Floats) -> None:
    """Fill `found` (n, h, w, c) with the gradients of the images.

    `gradients` (n, h // 2, w // 2, p) are those of the pooled pixels, and `codes` come from the forward pass;
    `kernels` (p, 3, 3, r) are the weights, with zeros for channels beyond c up to r, a multiple of 8.
    """
    samples, height, width, channels = found.shape
    high, wide, depth = codes.shape[1:]
    step = kernels.shape[3]
    stride, pixels = (width + 2) * step, high * wide * 4
    frame, weights = _aligned((height + 2) * stride), kernels.ravel()
    # One list more than pixels: for windows in which no pixel is above 0.
    entries = _aligned(2 * (pixels + 1) * depth)
    counts = np.zeros(pixels + 1, dtype=np.int64)
    flat_gradients, flat_codes = gradients.ravel(), codes.ravel()
    for sample in range(samples):
        counts[:] = 0
        for window in range(high * wide):
            begin = (sample * high * wide + window) * depth
            _list_by_pixel(flat_gradients, flat_codes, begin, depth, entries, counts, window, 9 * step)
        frame[:] = 0.0
        for line in range(3):
            at = 0
            while at < step:
                start, left = 3 * line * step + at, step - at
                for pixel in range(pixels):
                    window, code = pixel // 4, pixel % 4
                    row, column = 2 * (window // wide) + code // 2, 2 * (window % wide) + code % 2
                    first, count, corner = pixel * depth, counts[pixel], (row + line) * stride + column * step + at
                    if left >= 4 * LANES:
                        _scatter_4(entries, first, count, weights, start, step, frame, corner)
                    elif left >= 2 * LANES:
                        _scatter_2(entries, first, count, weights, start, step, frame, corner)
                    else:
                        _scatter_1(entries, first, count, weights, start, step, frame, corner)
                at += 4 * LANES if left >= 4 * LANES else 2 * LANES if left >= 2 * LANES else LANES
        for row in range(height):
            for column in range(width):
                begin = (row + 1) * stride + (column + 1) * step
                found[sample, row, column] = frame[begin : begin + channels]
