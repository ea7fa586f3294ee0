// The focus, where Python opens or closes a part of the page because of a button in the view. Streamlit cannot give it
// back to a button in a shadow root: without this the next Tab would begin at the top of the page.

const LOOK_MS = 75
// How long a busy server may take to draw what was asked for, and then the fields in it.
const COMES_MS = 15_000
export const FIELDS_MS = 1_500

const lost = (page) => page.activeElement === null || page.activeElement === page.body

// Tells whether what has the focus was reached by the keyboard.
export const byKeyboard = (root) => root.querySelector(":focus-visible") !== null

// Calls `then` once `found` gives something, with that; gives up after a while.
function once(found, then, until = performance.now() + COMES_MS) {
  const it = found()
  if (it) then(it)
  else if (performance.now() < until) setTimeout(() => once(found, then, until), LOOK_MS)
}

// Brings the focus into the plan's editor once it is there: to the field that `selectors` find first, or to its first
// button. Unless the person has brought it elsewhere meanwhile.
export function leadInto(editor, selectors, page = document) {
  const from = page.activeElement
  const field = () => selectors.map((each) => page.querySelector(`${editor} ${each}`)).find(Boolean)
  const focus = (it) => (page.activeElement === from || lost(page)) && it.focus({ preventScroll: true })
  once(
    () => page.querySelector(editor),
    (there) => {
      const end = performance.now() + FIELDS_MS
      once(() => field() ?? (performance.now() > end && there.querySelector(".st-key-edit-steps button")), focus)
    },
  )
}

// Gives the focus to what `to` returns once nothing on the page matches `selector`, if closing that has lost the focus.
// What matches may still be to come, stay open for as long as the person likes, or be closed between two looks. And the
// page may be drawn once more after that, so that the focus is lost again: this looks for a while. `comesMs`: how long
// what matches may take to come.
export function returnAfter(selector, to, page = document, comesMs = COMES_MS) {
  let until = performance.now() + comesMs
  const look = () => {
    if (page.querySelector(selector) !== null) until = performance.now() + FIELDS_MS
    else if (lost(page)) to()?.focus({ preventScroll: true })
    if (performance.now() < until) setTimeout(look, LOOK_MS)
  }
  setTimeout(look, LOOK_MS)
}
