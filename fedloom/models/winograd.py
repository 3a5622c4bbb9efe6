"""3x3 convolutions by Winograd's method (Lavin and Gray, arXiv:1509.09308): a quarter of the multiplications.

Outputs are made in tiles of 4x4, each from a tile of 6x6 inputs. Along one axis, the 4 outputs y of a kernel w on 6
inputs x are the coefficients of a product of polynomials, found by interpolation at 5 points and infinity:

    y = A ((G w) * (B x))        with A: 4 x 6, G: 6 x 3, B: 6 x 6

With both axes there are 36 products for 16 outputs, where the definition has 144; over channels each of the 36 is a
matrix product, of all tiles at once. Additions that mix the points are done for whole slices of images.

In float32 the rounding error is about 5 times that of the definition (1e-6 of the outputs' size). The points decide
this: 0, +-3/4, +-3/2 lose half as much as the textbook's 0, +-1, +-2.
"""

import jax
import jax.numpy as jnp
import numpy as np

TILE = 4
POINTS = np.array([0, 0.75, -0.75, 1.5, -1.5])


def _matrices() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, G and B: values of a polynomial at the points, the same for the kernel with Lagrange's weights, and the
    polynomials that vanish at all other points. The last row, or column, is infinity: the leading coefficient."""
    at_infinity = np.eye(TILE)[:, -1:]
    a = np.hstack([np.vander(POINTS, TILE, increasing=True).T, at_infinity])
    others = [np.delete(POINTS, j) for j in range(len(POINTS))]
    weight = np.array([np.prod(p - rest) for p, rest in zip(POINTS, others, strict=True)])
    g = np.vstack([np.vander(POINTS, 3, increasing=True) / weight[:, None], [[0, 0, 1]]])
    b = np.vstack([np.append(np.poly(rest)[::-1], 0) for rest in others] + [np.poly(POINTS)[::-1]])
    b[np.abs(b) < 1e-12] = 0  # zeros but for rounding
    return a, g, b


A, G, B = _matrices()


def _mix(matrix: np.ndarray, parts: list[jax.Array]) -> list[jax.Array]:
    """matrix @ parts, as sums of whole arrays."""
    return [sum(float(c) * part for c, part in zip(row, parts, strict=True) if c) for row in matrix]  # type: ignore[misc]


def _tiles(size: int) -> int:
    """How many tiles cover the outputs along an axis of this many inputs."""
    return -(-(size - 2) // TILE)


def _to_points(x: jax.Array) -> jax.Array:
    """B x B^T for every tile of the images: [36, batch * tiles, channels]."""
    batch, height, width, channels = x.shape
    rows, columns = _tiles(height), _tiles(width)
    # Cell k of tile t is row 4 t + k: for k of 4 and 5 that is row k - 4 of the next block of 4 rows.
    x = jnp.pad(x, [(0, 0), (0, TILE * (rows + 1) - height), (0, TILE * (columns + 1) - width), (0, 0)])
    x = x.reshape(batch, rows + 1, TILE, TILE * (columns + 1), channels)
    r = jnp.stack(_mix(B, [x[:, :-1, k] if k < TILE else x[:, 1:, k - TILE] for k in range(6)]))
    r = r.reshape(6, batch, rows, columns + 1, TILE, channels)
    v = jnp.stack(_mix(B, [r[:, :, :, :-1, k] if k < TILE else r[:, :, :, 1:, k - TILE] for k in range(6)]))
    return v.reshape(36, batch * rows * columns, channels)


def _to_points_transposed(v: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """The transpose of `_to_points` as a linear map: each tile's B^T v B, added up where tiles overlap."""
    batch, height, width, channels = shape
    rows, columns = _tiles(height), _tiles(width)

    def overlapped(parts: list[jax.Array], axis: int) -> jax.Array:
        def shifted(part: jax.Array, by: int) -> jax.Array:
            return jnp.pad(part, [(by, 1 - by) if i == axis else (0, 0) for i in range(part.ndim)])

        cells = _mix(B.T, parts)
        blocks = [shifted(cells[k], 0) + shifted(cells[k + TILE], 1) for k in (0, 1)]
        return jnp.stack([*blocks, shifted(cells[2], 0), shifted(cells[3], 0)], axis + 1)

    r = overlapped(list(v.reshape(6, 6, batch, rows, columns, channels)), 3)
    x = overlapped(list(r.reshape(6, batch, rows, TILE * (columns + 1), channels)), 1)
    return x.reshape(batch, TILE * (rows + 1), TILE * (columns + 1), channels)[:, :height, :width]


def _from_points(m: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """A m A^T for every tile, side by side: images of the given shape."""
    batch, height, width, channels = shape
    rows, columns = -(-height // TILE), -(-width // TILE)
    s = jnp.stack(_mix(A, list(m.reshape(6, 6, -1))))
    y = jnp.stack(_mix(A, [s[:, k] for k in range(6)])).reshape(TILE, TILE, batch, rows, columns, channels)
    y = jnp.transpose(y, (2, 3, 0, 4, 1, 5)).reshape(batch, TILE * rows, TILE * columns, channels)
    return y[:, :height, :width]


def _from_points_transposed(dy: jax.Array) -> jax.Array:
    """The transpose of `_from_points`: each tile's A^T dy A."""
    batch, height, width, channels = dy.shape
    rows, columns = -(-height // TILE), -(-width // TILE)
    dy = jnp.pad(dy, [(0, 0), (0, TILE * rows - height), (0, TILE * columns - width), (0, 0)])
    dy = dy.reshape(batch, rows, TILE, columns, TILE, channels)
    s = jnp.stack(_mix(A.T, [dy[:, :, k] for k in range(TILE)]))
    m = jnp.stack(_mix(A.T, [s[:, :, :, :, k] for k in range(TILE)]))
    return m.reshape(36, -1, channels)


def _kernel_to_points(w: jax.Array) -> jax.Array:
    """G w G^T for every pair of channels: [36, in, out]."""
    r = jnp.stack(_mix(G, list(w)))
    return jnp.stack(_mix(G, [r[:, k] for k in range(3)])).reshape(36, *w.shape[2:])


def _kernel_to_points_transposed(u: jax.Array) -> jax.Array:
    """The transpose of `_kernel_to_points`: G^T u G."""
    r = jnp.stack(_mix(G.T, list(u.reshape(6, 6, *u.shape[1:]))))
    return jnp.stack(_mix(G.T, [r[:, k] for k in range(6)]))


@jax.custom_vjp
def conv3x3(x: jax.Array, w: jax.Array) -> jax.Array:
    """The images [batch, height, width, in] convolved with w: [3, 3, in, out], without padding."""
    return _forward(x, w)[0]


def _forward(x: jax.Array, w: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    batch, height, width, _ = x.shape
    u = _kernel_to_points(w)
    v = _to_points(x)
    y = _from_points(v @ u, (batch, height - 2, width - 2, w.shape[3]))
    return y, (u, v)


def _backward(saved: tuple[jax.Array, jax.Array], dy: jax.Array) -> tuple[jax.Array, jax.Array]:
    u, v = saved
    batch, height, width, _ = dy.shape
    dm = _from_points_transposed(dy)
    du = jnp.swapaxes(v, 1, 2) @ dm
    dw = _kernel_to_points_transposed(du)
    dv = dm @ jnp.swapaxes(u, 1, 2)
    return _to_points_transposed(dv, (batch, height + 2, width + 2, v.shape[-1])), dw


conv3x3.defvjp(_forward, _backward)
