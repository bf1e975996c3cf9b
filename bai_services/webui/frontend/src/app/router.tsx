import { createRoute, createRouter, lazyRouteComponent, redirect } from '@tanstack/react-router';
import { config } from '../config';
import { PageError } from '../pages/missing/PageError';
import { readDashboardSearch } from '../pages/dashboard/search';
import { readDataSearch } from '../pages/data/search';
import { readSessionsSearch } from '../pages/sessions/search';
import { StartPage } from '../pages/start/StartPage';
import { root } from './root';

const index = createRoute({
  getParentRoute: () => root,
  path: '/',
  beforeLoad: () => {
    redirect({ to: '/start', replace: true, throw: true });
  }
});

const start = createRoute({ getParentRoute: () => root, path: '/start', component: StartPage });

const dashboard = createRoute({
  getParentRoute: () => root,
  path: '/dashboard',
  component: lazyRouteComponent(() => import('../pages/dashboard/DashboardPage'), 'DashboardPage'),
  validateSearch: readDashboardSearch
});

const sessions = createRoute({
  getParentRoute: () => root,
  path: '/sessions',
  component: lazyRouteComponent(() => import('../pages/sessions/SessionsPage'), 'SessionsPage'),
  validateSearch: readSessionsSearch
});

const data = createRoute({
  getParentRoute: () => root,
  path: '/data',
  component: lazyRouteComponent(() => import('../pages/data/DataPage'), 'DataPage'),
  validateSearch: readDataSearch
});

export const router = createRouter({
  routeTree: root.addChildren([index, start, dashboard, sessions, data]),
  basepath: config.base,
  defaultErrorComponent: PageError,
  scrollRestoration: true
});

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router;
  }
}
