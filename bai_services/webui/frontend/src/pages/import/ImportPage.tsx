import { getRouteApi } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { EntityList } from '../../components/entities/EntityList';
import { PageTitle } from '../../components/PageTitle';
import { useIsReadOnly } from '../../data/accounts/me';
import { CurrentImport } from './CurrentImport';
import { ImportForm } from './ImportForm';
import { IMPORTS } from './imports';
import { readImportSearch } from './search';

const route = getRouteApi('/import');

/** Imports a repository, an archive or a file into a folder, and starts a session with it. */
export function ImportPage() {
  const { t } = useTranslation();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const isReadOnly = useIsReadOnly();
  const change = (changes: Record<string, unknown>) =>
    void navigate({ search: old => readImportSearch({ ...old, ...changes }) });
  const { repo = '', branch = '', path = '', urlpath = '' } = search;
  return (
    <>
      <PageTitle>{t('pages.import')}</PageTitle>
      {search.item ? (
        <CurrentImport
          key={search.item}
          id={search.item}
          sessionId={search.session}
          onStarted={session => change({ session })}
          onClose={() => change({ item: undefined, session: undefined })}
        />
      ) : (
        isReadOnly === false && (
          <ImportForm
            // A new key for each link, so that a new link replaces the content of the form.
            key={JSON.stringify([repo, branch, path, urlpath])}
            link={{ repo, branch, path, urlpath }}
            onDone={item => change({ item })}
          />
        )
      )}
      <EntityList entity={IMPORTS} search={search} onSearch={changes => change({ ...changes })} />
    </>
  );
}
