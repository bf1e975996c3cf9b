import {
  createRoute,
  createRouter,
  lazyRouteComponent,
  parseSearchWith,
  redirect
} from '@tanstack/react-router';
import { parseSearchValue, validated } from '../components/list/listSearch';
import { readEntitySearch } from '../components/entities/search';
import { config } from '../config';
import { currentPreferences } from '../data/accounts/preferences';
import { loadScript } from '../data/scripts';
import { PageError } from '../pages/missing/PageError';
import { readChatSearch } from '../pages/chat/search';
import { readDashboardSearch } from '../pages/dashboard/search';
import { readDataSearch } from '../pages/data/search';
import { readEndpointsSearch } from '../pages/endpoints/search';
import { readImportSearch } from '../pages/import/search';
import { readLauncherSearch } from '../pages/launcher/search';
import { readModelsSearch } from '../pages/models/search';
import { readPipelinesSearch } from '../pages/pipelines/search';
import { readSessionsSearch } from '../pages/sessions/search';
import { readSchedulerSearch } from '../pages/scheduler/search';
import { readSettingsSearch } from '../pages/settings/search';
import { readStatisticsSearch } from '../pages/statistics/search';
import { StartPage } from '../pages/start/StartPage';
import { PagePending } from './PagePending';
import { root } from './root';

// A page that loads within 300 ms replaces the previous page without a placeholder.
const PENDING_MILLIS = 300;

const index = createRoute({
  getParentRoute: () => root,
  path: '/',
  beforeLoad: () => {
    redirect({ to: currentPreferences().startPage, replace: true, throw: true });
  }
});

const start = createRoute({ getParentRoute: () => root, path: '/start', component: StartPage });

const dashboard = createRoute({
  getParentRoute: () => root,
  path: '/dashboard',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/dashboard/DashboardPage')),
    'DashboardPage'
  ),
  validateSearch: validated(readDashboardSearch)
});

const sessions = createRoute({
  getParentRoute: () => root,
  path: '/sessions',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/sessions/SessionsPage')),
    'SessionsPage'
  ),
  validateSearch: validated(readSessionsSearch)
});

const launch = createRoute({
  getParentRoute: () => root,
  path: '/launch',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/launcher/LauncherPage')),
    'LauncherPage'
  ),
  validateSearch: validated(readLauncherSearch)
});

const data = createRoute({
  getParentRoute: () => root,
  path: '/data',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/data/DataPage')),
    'DataPage'
  ),
  validateSearch: validated(readDataSearch)
});

const statistics = createRoute({
  getParentRoute: () => root,
  path: '/statistics',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/statistics/StatisticsPage')),
    'StatisticsPage'
  ),
  validateSearch: validated(readStatisticsSearch)
});

const users = createRoute({
  getParentRoute: () => root,
  path: '/users',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/users/UsersPage')),
    'UsersPage'
  ),
  validateSearch: validated(readEntitySearch)
});

const credentials = createRoute({
  getParentRoute: () => root,
  path: '/credentials',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/credentials/CredentialsPage')),
    'CredentialsPage'
  ),
  validateSearch: validated(readEntitySearch)
});

const projects = createRoute({
  getParentRoute: () => root,
  path: '/projects',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/projects/ProjectsPage')),
    'ProjectsPage'
  ),
  validateSearch: validated(readEntitySearch)
});

const policies = createRoute({
  getParentRoute: () => root,
  path: '/policies',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/policies/PoliciesPage')),
    'PoliciesPage'
  ),
  validateSearch: validated(readEntitySearch)
});

const presets = createRoute({
  getParentRoute: () => root,
  path: '/presets',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/presets/PresetsPage')),
    'PresetsPage'
  ),
  validateSearch: validated(readEntitySearch)
});

const idleCheckers = createRoute({
  getParentRoute: () => root,
  path: '/idle-checkers',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/idleCheckers/IdleCheckersPage')),
    'IdleCheckersPage'
  ),
  validateSearch: validated(readEntitySearch)
});

const images = createRoute({
  getParentRoute: () => root,
  path: '/images',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/images/ImagesPage')),
    'ImagesPage'
  ),
  validateSearch: validated(readEntitySearch)
});

const agents = createRoute({
  getParentRoute: () => root,
  path: '/agents',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/agents/AgentsPage')),
    'AgentsPage'
  ),
  validateSearch: validated(readEntitySearch)
});

const agentSummary = createRoute({
  getParentRoute: () => root,
  path: '/agent-summary',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/agents/AgentSummaryPage')),
    'AgentSummaryPage'
  ),
  validateSearch: validated(readEntitySearch)
});

const resourceGroups = createRoute({
  getParentRoute: () => root,
  path: '/resource-groups',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/resourceGroups/ResourceGroupsPage')),
    'ResourceGroupsPage'
  ),
  validateSearch: validated(readEntitySearch)
});

const scheduler = createRoute({
  getParentRoute: () => root,
  path: '/scheduler',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/scheduler/SchedulerPage')),
    'SchedulerPage'
  ),
  validateSearch: validated(readSchedulerSearch)
});

const storage = createRoute({
  getParentRoute: () => root,
  path: '/storage',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/storage/StoragePage')),
    'StoragePage'
  ),
  validateSearch: validated(readEntitySearch)
});

const schedules = createRoute({
  getParentRoute: () => root,
  path: '/schedules',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/schedules/SchedulesPage')),
    'SchedulesPage'
  ),
  validateSearch: validated(readEntitySearch)
});

const customImages = createRoute({
  getParentRoute: () => root,
  path: '/custom-images',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/customImages/CustomImagesPage')),
    'CustomImagesPage'
  ),
  validateSearch: validated(readEntitySearch)
});

const endpoints = createRoute({
  getParentRoute: () => root,
  path: '/endpoints',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/endpoints/EndpointsPage')),
    'EndpointsPage'
  ),
  validateSearch: validated(readEndpointsSearch)
});

const chat = createRoute({
  getParentRoute: () => root,
  path: '/chat',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/chat/ChatPage')),
    'ChatPage'
  ),
  validateSearch: validated(readChatSearch)
});

const models = createRoute({
  getParentRoute: () => root,
  path: '/models',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/models/ModelsPage')),
    'ModelsPage'
  ),
  validateSearch: validated(readModelsSearch)
});

const pipelines = createRoute({
  getParentRoute: () => root,
  path: '/pipelines',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/pipelines/PipelinesPage')),
    'PipelinesPage'
  ),
  validateSearch: validated(readPipelinesSearch)
});

const importPage = createRoute({
  getParentRoute: () => root,
  path: '/import',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/import/ImportPage')),
    'ImportPage'
  ),
  validateSearch: validated(readImportSearch)
});

const announcements = createRoute({
  getParentRoute: () => root,
  path: '/announcements',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/announcements/AnnouncementsPage')),
    'AnnouncementsPage'
  ),
  validateSearch: validated(readEntitySearch)
});

const webhooks = createRoute({
  getParentRoute: () => root,
  path: '/webhooks',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/webhooks/WebhooksPage')),
    'WebhooksPage'
  ),
  validateSearch: validated(readEntitySearch)
});

const notifications = createRoute({
  getParentRoute: () => root,
  path: '/notifications',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/notifications/NotificationsPage')),
    'NotificationsPage'
  ),
  validateSearch: validated(readEntitySearch)
});

const maintenance = createRoute({
  getParentRoute: () => root,
  path: '/maintenance',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/maintenance/MaintenancePage')),
    'MaintenancePage'
  ),
  validateSearch: validated(readEntitySearch)
});

const reservations = createRoute({
  getParentRoute: () => root,
  path: '/reservations',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/reservations/ReservationsPage')),
    'ReservationsPage'
  ),
  validateSearch: validated(readEntitySearch)
});

const system = createRoute({
  getParentRoute: () => root,
  path: '/system',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/system/SystemPage')),
    'SystemPage'
  )
});

const audit = createRoute({
  getParentRoute: () => root,
  path: '/audit',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/audit/AuditPage')),
    'AuditPage'
  ),
  validateSearch: validated(readEntitySearch)
});

const settings = createRoute({
  getParentRoute: () => root,
  path: '/settings',
  component: lazyRouteComponent(
    () => loadScript(() => import('../pages/settings/SettingsPage')),
    'SettingsPage'
  ),
  validateSearch: validated(readSettingsSearch)
});

export const router = createRouter({
  parseSearch: parseSearchWith(parseSearchValue),
  routeTree: root.addChildren([
    index,
    start,
    dashboard,
    sessions,
    launch,
    data,
    statistics,
    users,
    credentials,
    projects,
    policies,
    presets,
    idleCheckers,
    images,
    agents,
    agentSummary,
    resourceGroups,
    scheduler,
    storage,
    schedules,
    customImages,
    endpoints,
    chat,
    models,
    pipelines,
    importPage,
    announcements,
    maintenance,
    reservations,
    audit,
    webhooks,
    notifications,
    system,
    settings
  ]),
  basepath: config.base,
  defaultErrorComponent: PageError,
  defaultPendingComponent: PagePending,
  defaultPendingMs: PENDING_MILLIS,
  defaultPendingMinMs: 0,
  scrollRestoration: true
});

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router;
  }
}
