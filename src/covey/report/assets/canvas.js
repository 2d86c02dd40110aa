/* Canvases in CSS pixels, and the group markers. */

const polygon = (corners, turn, inner = null) => {
  const count = inner === null ? corners : 2 * corners;
  return Array.from({ length: count }, (_, index) => {
    const angle = turn + (2 * Math.PI * index) / count;
    const radius = inner !== null && index % 2 ? inner : 1.15;
    return [radius * Math.cos(angle), radius * Math.sin(angle)];
  });
};

const UP = -Math.PI / 2;
const PLUS = [
  [-0.4, -1.1], [0.4, -1.1], [0.4, -0.4], [1.1, -0.4], [1.1, 0.4], [0.4, 0.4],
  [0.4, 1.1], [-0.4, 1.1], [-0.4, 0.4], [-1.1, 0.4], [-1.1, -0.4], [-0.4, -0.4],
];

/** Group markers, repeating: a circle, then polygons of similar size. Colour is never the only channel. */
const SHAPES = [
  null,
  [[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]],
  [[0, -1.25], [1.25, 0], [0, 1.25], [-1.25, 0]],
  PLUS,
  polygon(6, 0),
  polygon(3, -UP),
  polygon(5, UP),
  polygon(5, UP, 0.5),
  polygon(3, Math.PI),
  polygon(3, 0),
  polygon(8, Math.PI / 8),
  [[0, -1.3], [0.75, 0], [0, 1.3], [-0.75, 0]],
];

/** Resize the canvas, in CSS pixels, for any device pixel ratio; returns its cleared context. */
export function prepare(canvas, width, height) {
  const ratio = globalThis.devicePixelRatio || 1;
  const [columns, rows] = [Math.round(width * ratio), Math.round(height * ratio)];
  // Setting the size, even to the same value, reallocates the bitmap, which is slow.
  if (canvas.width !== columns || canvas.height !== rows) {
    [canvas.width, canvas.height] = [columns, rows];
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** Add the marker of a group to the current path. */
export function addShape(context, group, x, y, radius) {
  const corners = SHAPES[group % SHAPES.length];
  if (corners === null) {
    context.moveTo(x + radius, y);
    context.arc(x, y, radius, 0, 2 * Math.PI);
    return;
  }
  corners.forEach(([right, down], index) => {
    if (index) context.lineTo(x + radius * right, y + radius * down);
    else context.moveTo(x + radius * right, y + radius * down);
  });
  context.closePath();
}

/** Add an upright triangle, the station marker, to the current path. */
export function addStation(context, x, y, radius) {
  context.moveTo(x, y - 1.1 * radius);
  context.lineTo(x + radius, y + 0.8 * radius);
  context.lineTo(x - radius, y + 0.8 * radius);
  context.closePath();
}

/** Add a cross, the violation marker, to the current path. */
export function addCross(context, x, y, radius) {
  context.moveTo(x - radius, y - radius);
  context.lineTo(x + radius, y + radius);
  context.moveTo(x + radius, y - radius);
  context.lineTo(x - radius, y + radius);
}
