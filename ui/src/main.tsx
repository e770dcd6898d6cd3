import { render } from "preact";
import { App } from "./app";
import { applyTheme, storedTheme } from "./settings";
import "./styles/index.css";

applyTheme(storedTheme());
const root = document.getElementById("app");
if (root) render(<App />, root);
