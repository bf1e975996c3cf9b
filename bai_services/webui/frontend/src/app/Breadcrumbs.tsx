import { Breadcrumb } from 'antd';
import { Link, useLocation } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { PAGES } from './pages';

/** The path from *Start* to the current page. */
export function Breadcrumbs() {
  const { t } = useTranslation();
  const { pathname, search } = useLocation();
  const page = PAGES.find(({ path }) => pathname.startsWith(path));
  if (!page || page.path === '/start') {
    return null;
  }
  return (
    <nav aria-label={t('shell.breadcrumbs')}>
      <Breadcrumb
        style={{ marginBottom: 8 }}
        items={[
          { title: <Link to="/start">{t('pages.start')}</Link> },
          ...(page.roles ? [{ title: t('shell.administration') }] : []),
          ...('folder' in search
            ? [
                { title: <Link to={page.path}>{t(page.title)}</Link> },
                { title: <span aria-current="page">{t('data.folder')}</span> }
              ]
            : [{ title: <span aria-current="page">{t(page.title)}</span> }])
        ]}
      />
    </nav>
  );
}
