const dark = matchMedia("(prefers-color-scheme: dark)");
const colour = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", colour);
colour();
SwaggerUIBundle({
  url: "$openapi",
  dom_id: "#swagger-ui",
  deepLinking: true,
  displayRequestDuration: true,
  validatorUrl: null,
  requestInterceptor: async (request) => {
    if (!["GET", "HEAD"].includes((request.method || "GET").toUpperCase())) {
      const session = await fetch("$session");
      if (session.ok) request.headers["X-CSRF-Token"] = (await session.json()).csrf_token;
    }
    return request;
  },
});
