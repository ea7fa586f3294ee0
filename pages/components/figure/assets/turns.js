// Whose turn it is to be drawn: figures in view first, the others when the browser has nothing to do; one a task, so that
// a page with many figures answers clicks between them.

// How far from view a figure counts as in view, for one that is scrolled to.
const NEAR = "240px"

// Figures out of view wait until none has come for this long: the page is still being built.
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

// Another task, and what the browser has to paint before it.
export function pause() {
  return new Promise((resolve) => setTimeout(resolve))
}

// `figure` wants to be drawn: it has an `element` and an async `draw()`, called once for each time that it entered, or
// less often if it enters again while it waits.
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
    // All may have left meanwhile.
    if (!figure) continue
    waiting.delete(figure)
    // What is wrong with one figure keeps no other from being drawn.
    await figure.draw().catch(reportError)
    await pause()
  }
  drawing = false
}

// The nearest to view of those that are near enough.
function inSight() {
  const near = [...waiting].filter((figure) => figure.away < Infinity)
  return near.toSorted((one, other) => one.away - other.away)[0]
}

// Of a figure that has only just come it is not known yet, and a hidden page is not told.
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
