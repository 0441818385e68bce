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
