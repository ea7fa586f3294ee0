// Places names beside the points of a scatter: each near its point, none over a point, an interval or another name.

const HEIGHT = 18
const POINT = 7
const RINGS = [10, 18, 28, 40, 54, 70, 90]
const FAR = 24

const context = document.createElement("canvas").getContext("2d")

// Returns the names as Plotly annotations. `labels`: [{ name, x, y, low, high, colour }] in the axes' own numbers;
// `path`: [[x, y], ...] of a line that names should not cover; `scale`: of the text.
export function placeLabels(element, labels, path, font, scale) {
  const { xaxis, yaxis } = element._fullLayout
  const size = 12 * scale
  context.font = `${size}px ${font}`
  const points = labels.map((label) => ({
    x: xaxis.d2p(label.x),
    y: yaxis.d2p(label.y),
    low: yaxis.d2p(label.low ?? label.y),
    high: yaxis.d2p(label.high ?? label.y),
    width: context.measureText(label.name).width + 6,
  }))
  const taken = points.flatMap(({ x, y, low, high }) => [
    { left: x - POINT, right: x + POINT, top: y - POINT, bottom: y + POINT },
    { left: x - 2, right: x + 2, top: Math.min(low, high), bottom: Math.max(low, high) },
  ])
  const room = { width: xaxis._length, height: yaxis._length }
  taken.push(...along(path.map(([x, y]) => [xaxis.d2p(x), yaxis.d2p(y)])))
  // Names with the least room choose first.
  const order = points.map((_, index) => index).toSorted((one, other) => crowd(points, other) - crowd(points, one))
  const places = []
  for (const index of order) {
    const best = candidates(points[index], HEIGHT * scale)
      .map((place) => ({ ...place, cost: cost(place, taken, room) }))
      .reduce((one, other) => (other.cost < one.cost ? other : one))
    taken.push(best.box)
    places[index] = best
  }
  return labels.map((label, index) => ({
    text: label.name,
    x: xaxis.type === "log" ? Math.log10(label.x) : label.x,
    y: label.y,
    ax: places[index].dx,
    ay: places[index].dy,
    xanchor: "center",
    yanchor: "middle",
    showarrow: true,
    arrowhead: 0,
    arrowwidth: 0.6,
    standoff: 5,
    arrowcolor: places[index].ring > FAR ? label.colour : "rgba(0,0,0,0)",
    font: { size, color: label.colour },
  }))
}

// Returns small boxes along a line through `corners`, in pixels.
function along(corners) {
  const found = []
  for (let at = 1; at < corners.length; at += 1) {
    const [[x0, y0], [x1, y1]] = [corners[at - 1], corners[at]]
    const count = Math.ceil(Math.hypot(x1 - x0, y1 - y0) / 6)
    for (let step = 0; step <= count; step += 1) {
      const [x, y] = [x0 + ((x1 - x0) * step) / count, y0 + ((y1 - y0) * step) / count]
      found.push({ left: x - 1.5, right: x + 1.5, top: y - 1.5, bottom: y + 1.5 })
    }
  }
  return found
}

function crowd(points, index) {
  const own = points[index]
  return points.filter(({ x, y }) => Math.abs(x - own.x) < 90 && Math.abs(y - own.y) < 40).length
}

function candidates({ x, y, width }, height) {
  const found = []
  for (const ring of RINGS) {
    const side = width / 2 + ring
    for (const dy of [0, -ring, ring]) found.push([side, dy, ring], [-side, dy, ring])
    found.push([0, -ring - 4, ring], [0, ring + 4, ring])
  }
  return found.map(([dx, dy, ring]) => ({
    dx,
    dy,
    ring,
    box: { left: x + dx - width / 2, right: x + dx + width / 2, top: y + dy - height / 2, bottom: y + dy + height / 2 },
  }))
}

// Covering something costs most, leaving the plot less, and distance least.
function cost({ box, dx, dy, ring }, taken, { width, height }) {
  const covered = taken.reduce((sum, other) => sum + over(box, other), 0)
  const outside =
    Math.max(-box.left, 0) + Math.max(box.right - width, 0) + Math.max(-box.top, 0) + Math.max(box.bottom - height, 0)
  return covered * 10 + outside * 300 + ring * 3 + (dx < 0 ? 4 : 0) + Math.abs(dy) * 0.2
}

function over(one, other) {
  const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left)
  const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top)
  return Math.max(wide, 0) * Math.max(high, 0)
}
