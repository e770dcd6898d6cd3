/** Lays graphs out beside the page, so that it stays responsive. */

import { layout, type Asked } from "./layout";

addEventListener("message", (event: MessageEvent<{ number: number; asked: Asked }>) => {
  const { number, asked } = event.data;
  try {
    postMessage({ number, placed: layout(asked) });
  } catch (error) {
    postMessage({ number, trouble: String(error) });
  }
});
