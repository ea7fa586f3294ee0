// A task is looked at while it is typed: where only simulated workers are chosen, the page asks who should answer one
// that they do not know. Streamlit draws the page anew only when that question comes or goes.

// Streamlit applies the text of a field when it loses the focus or at Ctrl+Enter; that of a plan also after a pause. In
// a dialog Ctrl+Enter is for its fields alone, and starts no run of the page below.

const PAUSE_MS = 350
const TWICE_MS = 1000
const PLAN = ".st-key-plans-given textarea"
let pause = null
let newest = 0

for (const kind of ["input", "compositionend"]) document.addEventListener(kind, typed)
// A field that loses the focus applies its text itself.
document.addEventListener("focusout", ({ target }) => target.matches?.(PLAN) && clearTimeout(pause))
// Streamlit's fields listen at the page's root, its shortcuts at the document. The body lies between them.
document.body.addEventListener("keydown", (event) => {
  const { key, ctrlKey, metaKey, shiftKey, target } = event
  if (key === "Enter" && (ctrlKey || metaKey) && !shiftKey && target.closest?.('[role="dialog"]'))
    event.stopPropagation()
})

// The settings lie over the page like a menu, and close like one.
document.addEventListener("pointerdown", ({ target }) => {
  if (!target.closest?.('.st-key-settings, [role="dialog"], [data-baseweb="popover"]')) closeSettings()
})
document.addEventListener("keydown", ({ key, target }) => {
  if (key === "Escape" && !target.closest?.('[role="dialog"], [data-baseweb="popover"]')) closeSettings()
})
// Where a run is open, the link to its own page leads to the page without it, as Streamlit goes back in the history.
document.addEventListener(
  "click",
  (event) => {
    const link = event.target.closest?.('[data-testid="stSidebarNavLink"]')
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || link.pathname !== location.pathname) return
    if (!new URLSearchParams(location.search).has("run")) return
    event.preventDefault()
    event.stopPropagation()
    history.pushState(null, "", link.href)
    dispatchEvent(new PopStateEvent("popstate"))
  },
  true,
)

// A second press would draw the Keys page again, without the new key, which it shows once.
let pressed = -Infinity
document.addEventListener(
  "click",
  (event) => {
    if (!event.target.closest?.(".st-key-create-key")) return
    if (event.timeStamp - pressed < TWICE_MS) {
      event.preventDefault()
      event.stopPropagation()
    } else pressed = event.timeStamp
  },
  true,
)

function closeSettings() {
  document.querySelector(".st-key-settings details[open] > summary")?.click()
}

function typed({ target, isComposing }) {
  const then = target.matches?.(PLAN) ? apply : target.matches?.(".st-key-task textarea") ? look : null
  if (then === null || isComposing) return
  clearTimeout(pause)
  pause = setTimeout(then, PAUSE_MS, target)
}

// As if the person had pressed the field's own key.
function apply(field) {
  const press = { key: "Enter", keyCode: 13, ctrlKey: true, bubbles: true, cancelable: true }
  if (field.isConnected) field.dispatchEvent(new KeyboardEvent("keydown", press))
}

async function look(field) {
  if (document.querySelector(".st-key-asks-while-typing") === null) return
  const task = field.value
  const number = ++newest
  const asks = task.trim() !== "" && !(await isKnown(task))
  if (number !== newest || field.value !== task) return
  // Streamlit takes what was typed when the field loses the focus. It keeps it; the event alone says so.
  const asked = document.querySelector(".st-key-who-answers") !== null
  if (asks !== asked) field.dispatchEvent(new FocusEvent("focusout", { bubbles: true }))
}

async function isKnown(task) {
  try {
    const said = { method: "POST", body: JSON.stringify({ task }) }
    const answer = await fetch(new URL("api/known-task", new URL(".", location.href)), said)
    return !answer.ok || (await answer.json()).known
  } catch {
    return true // the server is gone: the page itself says so
  }
}
