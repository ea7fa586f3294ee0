// Where the card stands: beside what it explains, whole in the window, and never over it while there is another place.

const GAP = 14
const EDGE = 12

// Returns {left, top} of a card of this size. `target`: a box in the window, or null; `room`: the window.
export function place(target, card, room) {
  const most = { left: room.width - card.width - EDGE, top: room.height - card.height - EDGE }
  if (target === null) return { left: Math.max(EDGE, most.left), top: Math.max(EDGE, most.top) }
  const places = candidates(target, card, most).map((each) => clamped(each, most))
  const covered = places.map((each) => overlap(target, { ...each, ...card }))
  return places[covered.indexOf(Math.min(...covered))]
}

// Whether the card lies over the target here, though both have room in the window if the target stands at its end.
export function inTheWay(target, card, room) {
  const at = place(target, card, room)
  return overlap(target, { ...at, ...card }) > 0 && target.height + card.height + GAP + EDGE <= room.height
}

function candidates(target, card, most) {
  const right = target.left + target.width
  const bottom = target.top + target.height
  const middle = target.left + (target.width - card.width) / 2
  const beside = [
    { left: right + GAP, top: target.top },
    { left: target.left - card.width - GAP, top: target.top },
    { left: middle, top: bottom + GAP },
    { left: middle, top: target.top - card.height - GAP },
  ]
  const corners = [most.left, EDGE].flatMap((left) => [most.top, EDGE].map((top) => ({ left, top })))
  return [...beside, ...corners]
}

const clamped = ({ left, top }, most) => ({
  left: Math.max(EDGE, Math.min(left, most.left)),
  top: Math.max(EDGE, Math.min(top, most.top)),
})

function overlap(one, other) {
  const width = Math.min(one.left + one.width, other.left + other.width) - Math.max(one.left, other.left)
  const height = Math.min(one.top + one.height, other.top + other.height) - Math.max(one.top, other.top)
  return Math.max(0, width) * Math.max(0, height)
}
