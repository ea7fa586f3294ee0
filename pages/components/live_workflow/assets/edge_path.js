// The curve of an edge between two cards, for those who paint it and for those who ask what is under the pointer.

export const ARROW = 8
const SAMPLES = 12

// Between columns that lie close the curve bends within the gap.
export const pullOf = (from, to) => {
  const across = to.x - from.x
  return across > 0 && across < 36 ? Math.max(6, across * 0.75) : Math.max(18, across * 0.5)
}

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
export function distanceTo({ start, enter, bend, tip, end, course }, point) {
  const curve = (from, to) => Array.from({ length: SAMPLES + 1 }, (_, at) => onCurve(from, to, at / SAMPLES))
  const points = course ? [...course, end] : [...(enter ? curve(start, enter) : []), ...curve(bend, tip), end]
  return Math.min(...points.slice(1).map((to, at) => fromLine(point, points[at], to)))
}

function fromLine(point, from, to) {
  const [x, y] = [to.x - from.x, to.y - from.y]
  const along = ((point.x - from.x) * x + (point.y - from.y) * y) / (x * x + y * y || 1)
  const share = Math.max(0, Math.min(1, along))
  return Math.hypot(point.x - from.x - share * x, point.y - from.y - share * y)
}
