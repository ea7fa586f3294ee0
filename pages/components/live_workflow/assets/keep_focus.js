// The focus, where Python opens or closes a dialog because of a button in the view. Streamlit cannot give it
// back to a button in a shadow root: without this the next Tab would begin at the top of the page.

const LOOK_MS = 75
// How long a busy server may take to draw what was asked for, and how long it may go on drawing.
const COMES_MS = 15_000
export const DRAWN_MS = 1_500

const lost = (page) => page.activeElement === null || page.activeElement === page.body

// Tells whether what has the focus was reached by the keyboard.
export const byKeyboard = (root) => root.querySelector(":focus-visible") !== null

// Gives the focus to what `to` returns once nothing on the page matches `selector`, if closing that has lost the focus.
// What matches may still be to come, stay open for as long as the person likes, or be closed between two looks. And the
// page may be drawn once more after that, so that the focus is lost again: this looks for a while. `comesMs`: how long
// what matches may take to come.
export function returnAfter(selector, to, page = document, comesMs = COMES_MS) {
  let until = performance.now() + comesMs
  const look = () => {
    if (page.querySelector(selector) !== null) until = performance.now() + DRAWN_MS
    else if (lost(page)) to()?.focus({ preventScroll: true })
    if (performance.now() < until) setTimeout(look, LOOK_MS)
  }
  setTimeout(look, LOOK_MS)
}
