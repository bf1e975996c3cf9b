import {
  ApiOutlined,
  AppstoreOutlined,
  AuditOutlined,
  BarChartOutlined,
  BellOutlined,
  BlockOutlined,
  BranchesOutlined,
  CalendarOutlined,
  CloudOutlined,
  CodeSandboxOutlined,
  ClusterOutlined,
  DashboardOutlined,
  DatabaseOutlined,
  DeploymentUnitOutlined,
  ExperimentOutlined,
  FieldTimeOutlined,
  FolderOutlined,
  HomeOutlined,
  ImportOutlined,
  InfoCircleOutlined,
  KeyOutlined,
  MessageOutlined,
  NotificationOutlined,
  PlusCircleOutlined,
  ProjectOutlined,
  RocketOutlined,
  SafetyOutlined,
  ScheduleOutlined,
  SettingOutlined,
  TeamOutlined,
  ToolOutlined
} from '@ant-design/icons';
import type { ReactNode } from 'react';
import { config } from '../config';
import { isReadOnly } from '../data/accounts/me';

export type Role = 'user' | 'admin' | 'superadmin' | 'monitor';

export type PagePath =
  | '/start'
  | '/dashboard'
  | '/sessions'
  | '/launch'
  | '/schedules'
  | '/custom-images'
  | '/endpoints'
  | '/chat'
  | '/models'
  | '/pipelines'
  | '/import'
  | '/data'
  | '/statistics'
  | '/reservations'
  | '/agent-summary'
  | '/users'
  | '/credentials'
  | '/projects'
  | '/policies'
  | '/presets'
  | '/images'
  | '/agents'
  | '/resource-groups'
  | '/scheduler'
  | '/storage'
  | '/announcements'
  | '/maintenance'
  | '/audit'
  | '/idle-checkers'
  | '/system'
  | '/webhooks'
  | '/notifications'
  | '/settings';

const ADMINS: readonly Role[] = ['admin', 'superadmin', 'monitor'];
const SUPERADMINS: readonly Role[] = ['superadmin', 'monitor'];

interface Page {
  path: PagePath;
  /** Translation key of the title. */
  title: string;
  icon: ReactNode;
  /** Chapter of the manual: page and heading. */
  chapter: string;
  /**
   * Roles that may open the page; all roles if omitted. Pages with roles are in the section
   * *Administration*.
   */
  roles?: readonly Role[];
  /**
   * The page is shown to the role *user* if the installation lets users see agents. Administrators
   * have the page *Agents*.
   */
  isOfAgents?: boolean;
  /** Whether the page only creates objects, so that read-only roles have no use for it. */
  isForWriters?: boolean;
  /** Whether the page is in the account menu instead of the sidebar. */
  isInAccountMenu?: boolean;
}

/** The pages of the sidebar, the account menu and the command palette, in order. */
export const PAGES: readonly Page[] = [
  {
    path: '/start',
    title: 'pages.start',
    icon: <HomeOutlined />,
    chapter: 'user-guide/web-ui.html#web-ui'
  },
  {
    path: '/dashboard',
    title: 'pages.dashboard',
    icon: <DashboardOutlined />,
    chapter: 'user-guide/web-ui.html#web-ui'
  },
  {
    path: '/sessions',
    title: 'pages.sessions',
    icon: <CloudOutlined />,
    chapter: 'user-guide/sessions.html#the-queue'
  },
  {
    path: '/launch',
    title: 'pages.launch',
    icon: <PlusCircleOutlined />,
    chapter: 'user-guide/sessions.html#start-a-session',
    isForWriters: true
  },
  {
    path: '/schedules',
    title: 'pages.schedules',
    icon: <CalendarOutlined />,
    chapter: 'user-guide/batch.html#schedules'
  },
  {
    path: '/custom-images',
    title: 'pages.custom-images',
    icon: <CodeSandboxOutlined />,
    chapter: 'user-guide/images.html#custom-images'
  },
  {
    path: '/pipelines',
    title: 'pages.pipelines',
    icon: <BranchesOutlined />,
    chapter: 'user-guide/pipelines.html#pipelines'
  },
  {
    path: '/endpoints',
    title: 'pages.endpoints',
    icon: <RocketOutlined />,
    chapter: 'user-guide/serving.html#serve-a-model'
  },
  {
    path: '/chat',
    title: 'pages.chat',
    icon: <MessageOutlined />,
    chapter: 'user-guide/serving.html#chat'
  },
  {
    path: '/models',
    title: 'pages.models',
    icon: <ExperimentOutlined />,
    chapter: 'user-guide/serving.html#model-stores'
  },
  {
    path: '/import',
    title: 'pages.import',
    icon: <ImportOutlined />,
    chapter: 'user-guide/images.html#import-and-run'
  },
  {
    path: '/data',
    title: 'pages.data',
    icon: <FolderOutlined />,
    chapter: 'user-guide/folders.html#folders'
  },
  {
    path: '/statistics',
    title: 'pages.statistics',
    icon: <BarChartOutlined />,
    chapter: 'admin-guide/monitoring.html#usage-statistics'
  },
  {
    path: '/reservations',
    title: 'pages.reservations',
    icon: <CalendarOutlined />,
    chapter: 'user-guide/batch.html#reservations'
  },
  {
    path: '/agent-summary',
    title: 'pages.agent-summary',
    icon: <ClusterOutlined />,
    chapter: 'user-guide/web-ui.html#web-ui',
    isOfAgents: true
  },
  {
    path: '/users',
    title: 'pages.users',
    icon: <TeamOutlined />,
    chapter: 'admin-guide/accounts.html#roles-and-permissions',
    roles: ADMINS
  },
  {
    path: '/credentials',
    title: 'pages.credentials',
    icon: <KeyOutlined />,
    chapter: 'admin-guide/accounts.html#pages-of-the-web-ui',
    roles: ADMINS
  },
  {
    path: '/projects',
    title: 'pages.projects',
    icon: <ProjectOutlined />,
    chapter: 'admin-guide/accounts.html#quotas',
    roles: ADMINS
  },
  {
    path: '/policies',
    title: 'pages.policies',
    icon: <SafetyOutlined />,
    chapter: 'admin-guide/accounts.html#quotas',
    roles: ADMINS
  },
  {
    path: '/idle-checkers',
    title: 'pages.idle-checkers',
    icon: <FieldTimeOutlined />,
    chapter: 'admin-guide/idle-sessions.html#idle-checkers',
    roles: ADMINS
  },
  {
    path: '/presets',
    title: 'pages.presets',
    icon: <AppstoreOutlined />,
    chapter: 'admin-guide/accounts.html#pages-of-the-web-ui',
    roles: SUPERADMINS
  },
  {
    path: '/images',
    title: 'pages.images',
    icon: <BlockOutlined />,
    chapter: 'admin-guide/accounts.html#pages-of-the-web-ui',
    roles: SUPERADMINS
  },
  {
    path: '/agents',
    title: 'pages.agents',
    icon: <ClusterOutlined />,
    chapter: 'admin-guide/machines.html#agents',
    roles: ADMINS
  },
  {
    path: '/resource-groups',
    title: 'pages.resource-groups',
    icon: <DeploymentUnitOutlined />,
    chapter: 'admin-guide/scheduling.html#options-of-a-resource-group',
    roles: SUPERADMINS
  },
  {
    path: '/scheduler',
    title: 'pages.scheduler',
    icon: <ScheduleOutlined />,
    chapter: 'admin-guide/scheduling.html#trying-a-policy-before-activating-it',
    roles: ADMINS
  },
  {
    path: '/storage',
    title: 'pages.storage',
    icon: <DatabaseOutlined />,
    chapter: 'admin-guide/storage.html#storage-hosts-and-quotas',
    roles: ADMINS
  },
  {
    path: '/announcements',
    title: 'pages.announcements',
    icon: <NotificationOutlined />,
    chapter: 'admin-guide/messages.html#announcements',
    roles: ADMINS
  },
  {
    path: '/maintenance',
    title: 'pages.maintenance',
    icon: <ToolOutlined />,
    chapter: 'admin-guide/operation.html#maintenance',
    roles: ADMINS
  },
  {
    path: '/audit',
    title: 'pages.audit',
    icon: <AuditOutlined />,
    chapter: 'admin-guide/monitoring.html#audit-log',
    roles: ADMINS
  },
  {
    path: '/webhooks',
    title: 'pages.webhooks',
    icon: <ApiOutlined />,
    chapter: 'admin-guide/messages.html#webhooks',
    roles: ADMINS
  },
  {
    path: '/system',
    title: 'pages.system',
    icon: <InfoCircleOutlined />,
    chapter: 'admin-guide/operation.html#system-information-and-diagnostics',
    roles: SUPERADMINS
  },
  {
    path: '/notifications',
    title: 'pages.notifications',
    icon: <BellOutlined />,
    chapter: 'user-guide/web-ui.html#notifications',
    isInAccountMenu: true
  },
  {
    path: '/settings',
    title: 'pages.settings',
    icon: <SettingOutlined />,
    chapter: 'user-guide/web-ui.html#web-ui',
    isInAccountMenu: true
  }
];

/** The pages that a role may open; if the role is unknown, the pages that every role may open. */
export const pagesFor = (role: string | undefined) =>
  PAGES.filter(
    page =>
      (!page.roles || page.roles.some(allowed => allowed === role)) &&
      !(page.isForWriters && isReadOnly(role)) &&
      (!page.isOfAgents || (config.showsAgents && role === 'user'))
  );

/** The URL of the manual's chapter about a page. */
export function manualUrl(path: string): string {
  const page = PAGES.find(page => page.path === path);
  return `${config.base}/manual/${page?.chapter ?? 'index.html'}`;
}
