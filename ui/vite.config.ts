import { defineConfig } from "vite";
import { fakeServer } from "./dev/fake";

declare const process: { env: Record<string, string | undefined> };

// The server that `npm run dev` passes API calls to: a real one, or `npm run fake`.
const server = process.env["HOLDFAST_SERVER"] ?? "http://127.0.0.1:8787";
const toServer = { target: server, changeOrigin: true };

export default defineConfig({
  // Relative addresses: the page works under whatever prefix it is mounted at.
  base: "./",
  plugins: process.env["HOLDFAST_FAKE"] ? [fakeServer()] : [],
  server: process.env["HOLDFAST_FAKE"] ? {} : { proxy: { "/api": toServer, "/session": toServer } },
  build: {
    outDir: "../src/holdfast/web/_ui",
    emptyOutDir: true,
    target: "es2022",
    // The policy of the server allows no data: address and no inline script.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    cssCodeSplit: false,
    reportCompressedSize: true,
  },
  worker: { format: "es" },
});
