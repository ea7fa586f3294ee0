// The order in which figures are drawn: those in view first, the others when the browser is idle. Each figure is drawn
// in a task of its own, so that a page with many figures answers clicks between them.

// A figure this close to the view counts as in view, so that it is ready when it is scrolled to.
const NEAR = "240px"

// Figures out of view wait until no figure has been added for this long, because the page is still being built.
const QUIET_MS = 300

const waiting = new Set()
const figures = new WeakMap()
const whenIdle = window.requestIdleCallback ?? ((run) => setTimeout(run, 200))
let wake = () => {}
let drawing = false
let entered = 0

const inView = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting, boundingClientRect: box } of entries) {
      const figure = figures.get(target)
      if (figure) figure.away = isIntersecting ? Math.max(box.top - innerHeight, -box.bottom, 0) : Infinity
    }
    wake()
  },
  { rootMargin: NEAR, scrollMargin: NEAR },
)

// Waits for another task, after the browser has painted.
export function pause() {
  return new Promise((resolve) => setTimeout(resolve))
}

// Enters `figure` to be drawn. It has an `element` and an async `draw()`, which is called once for each entry, or less
// often if it enters again while it waits.
export function enter(figure) {
  if (!figures.has(figure.element)) {
    figures.set(figure.element, figure)
    inView.observe(figure.element)
  }
  waiting.add(figure)
  entered = performance.now()
  if (!drawing) drawAll()
}

export function leave(figure) {
  waiting.delete(figure)
  inView.unobserve(figure.element)
}

async function drawAll() {
  drawing = true
  while (waiting.size) {
    if (!inSight()) await idleOrInSight()
    const figure = inSight() ?? waiting.values().next().value
    // All figures may have left meanwhile.
    if (!figure) continue
    waiting.delete(figure)
    // A fault in one figure must not keep others from being drawn.
    await figure.draw().catch(reportError)
    await pause()
  }
  drawing = false
}

// Returns the figure nearest to the view, among those near enough.
function inSight() {
  const near = [...waiting].filter((figure) => figure.away < Infinity)
  return near.toSorted((one, other) => one.away - other.away)[0]
}

// Says whether every figure's place is known. That of a new figure is not yet, and a hidden page never learns it.
function known() {
  return document.hidden || [...waiting].every((figure) => figure.away !== undefined)
}

function idleOrInSight() {
  return new Promise((resolve) => {
    let idle = false
    wake = () => {
      if (inSight() || (idle && known())) resolve()
    }
    const whenQuiet = () => {
      const left = entered + QUIET_MS - performance.now()
      if (left > 0) return setTimeout(whenQuiet, left)
      whenIdle(() => {
        idle = true
        wake()
      })
    }
    whenQuiet()
  })
}
