// Brings the fields of a step into view, in the plan's editor, which Python draws.

const FIELDS_REST_MS = 4000
// How long a busy server may take to draw them.
const FIELDS_COME_MS = 15_000
const FIELDS_AGAIN_MS = 75

let bringing = new AbortController()

// The editor's list of steps scrolls by itself. It brings the line and the fields of step `number` into view, and the
// page follows once the list rests. Python draws the fields part by part, so this is repeated until they have rested for
// a while, another step is brought, or somebody scrolls, clicks or types.
export function bringFields(number) {
  const selector = `.st-key-edit-fields-${number}`
  const end = performance.now() + FIELDS_COME_MS
  let until = end
  bringing.abort()
  bringing = new AbortController()
  const { signal } = bringing
  for (const kind of ["wheel", "pointerdown", "keydown"]) {
    document.addEventListener(kind, () => bringing.abort(), { signal, capture: true, passive: true })
  }
  let place = null
  let height = null
  const bring = () => {
    if (signal.aborted || performance.now() > until) return
    const fields = document.querySelector(selector)
    const list = fields?.closest(".st-key-edit-steps")
    if (list) {
      intoView(list, list.querySelector(`.st-key-edit-row-${number}`) ?? fields, fields)
      const { top, bottom } = list.getBoundingClientRect()
      const rests = place === top + bottom && height === list.scrollHeight
      place = top + bottom
      height = list.scrollHeight
      if (!rests) until = Math.min(end, performance.now() + FIELDS_REST_MS)
      if (rests && (top < 0 || bottom > window.innerHeight)) list.scrollIntoView({ block: "nearest" })
    }
    setTimeout(bring, FIELDS_AGAIN_MS)
  }
  bring()
}

function intoView(list, line, fields) {
  const below = fields.getBoundingClientRect().bottom - list.getBoundingClientRect().bottom
  const above = list.getBoundingClientRect().top - line.getBoundingClientRect().top
  list.scrollTop += above > 0 ? -above : Math.max(0, Math.min(below, -above))
}
