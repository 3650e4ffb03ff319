import { defineConfig } from "vite";

// One script and one style sheet, named by their content: the gateway's Content-Security-Policy
// names both, and nothing else may run.
export default defineConfig({
  base: "/page/",
  build: {
    outDir: "../clawd/channels/http/page",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    rolldownOptions: {
      output: {
        codeSplitting: false,
        entryFileNames: "page-[hash].js",
        assetFileNames: "page-[hash][extname]",
      },
    },
  },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
});
