// The course of an edge between two cards, for those who paint it and for those who ask what is under the pointer.

export const ARROW = 8
const SAMPLES = 12

// Returns the points that lead an edge: `enter` and `bend` bound its lane past the cards of skipped layers, if it has
// one. `at(layer)` gives the middle of a column.
export function edgePath({ edge, from, to, at, width }) {
  const start = { x: from.x + width / 2, y: from.y + edge.source_dy }
  const end = { x: to.x - width / 2 - 2, y: to.y + edge.target_dy }
  const tip = { x: end.x - ARROW + 1, y: end.y }
  if (!edge.lane) return { start, enter: null, bend: start, tip, end }
  const { first, last, y } = edge.lane
  return { start, enter: { x: at(first) - width / 2, y }, bend: { x: at(last) + width / 2, y }, tip, end }
}

export const pullOf = (from, to) => Math.max(18, (to.x - from.x) * 0.5)

// Returns the point at `share` of the curve, 0 to 1.
export function onCurve(from, to, share) {
  const pull = pullOf(from, to)
  const left = 1 - share
  const [a, b, c, d] = [left ** 3, 3 * left ** 2 * share, 3 * left * share ** 2, share ** 3]
  return {
    x: a * from.x + b * (from.x + pull) + c * (to.x - pull) + d * to.x,
    y: (a + b) * from.y + (c + d) * to.y,
  }
}

// Returns the distance of a point from an edge.
export function distanceTo({ start, enter, bend, tip, end }, point) {
  const curve = (from, to) => Array.from({ length: SAMPLES + 1 }, (_, at) => onCurve(from, to, at / SAMPLES))
  const points = [...(enter ? curve(start, enter) : []), ...curve(bend, tip), end]
  return Math.min(...points.slice(1).map((to, at) => fromLine(point, points[at], to)))
}

function fromLine(point, from, to) {
  const [x, y] = [to.x - from.x, to.y - from.y]
  const along = ((point.x - from.x) * x + (point.y - from.y) * y) / (x * x + y * y || 1)
  const share = Math.max(0, Math.min(1, along))
  return Math.hypot(point.x - from.x - share * x, point.y - from.y - share * y)
}
